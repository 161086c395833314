"""Plans: what a batch of a scope reads, changes and hands to pipelines, stored before any output.

POST /execution/scopes/{scope}/plans and …/splits; GET …/state and …/runs.
"""

from __future__ import annotations

from pydantic import ConfigDict, Field

from headrace.wire.events import Cursor
from headrace.wire.model import Wire


class PlannedRun(Wire):
    """One call of a pipeline. Its place in a table is (scope, batch, pipeline, part); its events are those of a slice of the plan.

    `first` and `last` are the lowest and the highest seq of its events. `table` and `format` are those of the pipeline when the batch was
    planned. `letter` is the dead letter that the run tries again.
    """

    number: int = Field(ge=0)
    pipeline: str
    part: str = ""
    table: str | None = None
    format: str | None = None
    letter: str | None = None
    events: int = Field(ge=1)
    first: int = Field(ge=0)
    last: int = Field(ge=0)
    slice: int = Field(ge=0)


class Plan(Wire):
    """One batch: the cursor after it, its runs, and the changes of the scope's state (None deletes a key). Stored in one transaction.

    `cursor.batch` is one more than that of the plan before. `slices` and the values of `state` are base64 in JSON.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    epoch: int
    cursor: Cursor
    runs: list[PlannedRun] = []
    slices: list[bytes] = []
    state: dict[str, bytes | None] = {}


class SplitRun(Wire):
    """An open run that failed is replaced by `parts`, which have all of its events in their order. Stored in one transaction.

    A dead letter that the run tried again is deleted: from then on the parts have its events.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    epoch: int
    batch: int
    number: int
    parts: list[PlannedRun] = Field(min_length=2)
    slices: list[bytes]


class OpenRun(Wire):
    """A planned run without an outcome, and its slice. Of its attempts, `begun` is the last that began, `ended` the last that ended."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    batch: int
    number: int
    pipeline: str
    part: str
    table: str | None
    format: str | None
    letter: str | None
    events: int
    begun: int
    ended: int
    data: bytes


class OpenRuns(Wire):
    """A page of a scope's open runs, by batch and number; ask for the runs after the last one until a page is empty."""

    runs: list[OpenRun]


class ScopeState(Wire):
    """A page of a scope's state, by key; ask for what comes `after` until it is None."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    entries: dict[str, bytes]
    after: str | None
