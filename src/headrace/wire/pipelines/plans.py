"""Plans: the events that a batch of a scope reads, its state changes and its runs, stored before any output.

POST /execution/scopes/{scope}/plans, …/plans/pages, …/splits and …/positions; GET …/state and …/runs.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field, model_validator

from headrace.wire.base import WireModel
from headrace.wire.custody.events import Cursor

MAX_POSITION_SEQS: Final = 8_192
"""Seqs from the first event of a block of positions to its last, which limits the blocks that a look-up of one event reads."""
MAX_PLAN_PAGES: Final = 10_000
"""Pages of one plan."""
MAX_LEADERS: Final = 5_000
"""Events of one request for leaders."""
MAX_POSITIONS: Final = 1_000
"""Events of one request for positions."""


class PlannedRun(WireModel):
    """One call of a pipeline. Its key in a table is (scope, batch, pipeline, part), and its events are those of a slice of the plan.

    `first` and `last` are the lowest and the highest seq of its events. `table` and `format` are those of the pipeline at the time of the
    plan. `dead_letter` is the dead letter that the run retries.
    """

    number: int = Field(ge=0)
    pipeline: str
    part: str = ""
    table: str | None = None
    format: str | None = None
    dead_letter: str | None = None
    events: int = Field(ge=1)
    first: int = Field(ge=0)
    last: int = Field(ge=0)
    slice: int = Field(ge=0)


class PositionBlock(WireModel):
    """The positions of some events of one batch, as `PackedEvents`. `first` and `last` are the lowest and the highest seq."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    first: int = Field(ge=0)
    last: int = Field(ge=0)
    data: bytes

    @model_validator(mode="after")
    def _is_short(self) -> Self:
        if not 0 <= self.last - self.first < MAX_POSITION_SEQS:
            raise ValueError(f"a block of positions has at most {MAX_POSITION_SEQS} seqs from its first event to its last")
        return self


class Plan(WireModel):
    """One batch, stored in one transaction: the cursor after it, its runs, and the changes of the scope's state (None deletes a key).

    `cursor.batch` is one more than that of the plan before. `slices`, the values of `state` and the data of `positions` are base64 in JSON.
    `positions` has each event that got its position in this batch, in blocks of different events. `taken_back` names runs, by batch and
    number, that are no longer open because the state has their events. If a plan is too large for one request, its first `pages` pages are
    sent before, and this is the rest.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    epoch: int
    cursor: Cursor
    runs: list[PlannedRun] = []
    slices: list[bytes] = []
    state: dict[str, bytes | None] = {}
    positions: list[PositionBlock] = []
    taken_back: list[tuple[int, int]] = []
    pages: int = Field(default=0, ge=0, le=MAX_PLAN_PAGES)


class PlanPage(WireModel):
    """A page of a plan that is too large for one request, counted from 0. It has no effect before the plan that names the number of pages.

    The runs and slices of a plan are those of its pages in their order, and then its own.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    epoch: int
    batch: int = Field(ge=1)
    page: int = Field(ge=0, lt=MAX_PLAN_PAGES)
    runs: list[PlannedRun] = []
    slices: list[bytes] = []
    state: dict[str, bytes | None] = {}
    positions: list[PositionBlock] = []


class ScopeDeadLetter(WireModel):
    """A dead letter of a pipeline of the scope, neither settled nor discarded."""

    id: str
    seqs: list[tuple[int, int]]


class ScopeDeadLetters(WireModel):
    """A page of dead letters by id. Continue with `after`, which is null at the end."""

    dead_letters: list[ScopeDeadLetter]
    after: str | None = None


class FindLeaders(WireModel):
    """The keys of some events of the log."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    keys: list[bytes] = Field(max_length=MAX_LEADERS)


class FoundLeader(WireModel):
    """An event: its leader's key, and the triggers that had fired on it when it was stored."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    key: bytes
    leader: bytes | None
    triggers: list[str]


class FoundLeaders(WireModel):
    """The requested events that the log has."""

    events: list[FoundLeader]


class FindPositions(WireModel):
    """The seqs of some events that the scope has ordered, in ascending order."""

    seqs: list[Annotated[int, Field(ge=0)]] = Field(max_length=MAX_POSITIONS)


class Positions(WireModel):
    """The blocks that may have the positions of events up to the seq `to`.

    Request later events again. A null `to` means that there are none.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    blocks: list[bytes]
    to: int | None = None


class SplitRun(WireModel):
    """Replaces an open run that failed by `parts`, which have all of its events in their order. Stored in one transaction.

    A dead letter that the run retried is deleted, because the parts have its events.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    epoch: int
    batch: int
    number: int
    parts: list[PlannedRun] = Field(min_length=2)
    slices: list[bytes]


class OpenRun(WireModel):
    """A planned run without an outcome, and its slice. `begun` is its last attempt that began, `ended` its last attempt that ended."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    batch: int
    number: int
    pipeline: str
    part: str
    table: str | None
    format: str | None
    dead_letter: str | None
    events: int
    begun: int
    ended: int
    data: bytes


class OpenRuns(WireModel):
    """A page of a scope's open runs, by batch and number. Continue after the last run until a page is empty."""

    runs: list[OpenRun]


class ScopeState(WireModel):
    """A page of a scope's state, by key. Continue with `after`, which is null at the end."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    entries: dict[str, bytes]
    after: str | None
