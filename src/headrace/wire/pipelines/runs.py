"""Pipeline runs, POST /execution/runs, and redeliveries to pipelines, GET /execution/redeliveries."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from headrace.wire.base import Timestamp, WireModel

RunState = Literal["running", "succeeded", "failed", "interrupted"]


class RunReport(WireModel):
    """One run, in progress or ended. The last report of a `run_id` counts. `seqs` are its events, as closed ranges.

    `dead_letter` names the dead letter that a failed run creates, or that a succeeded run settles. `number` is the run's number in the
    plan of its batch. A run that succeeded, or that failed with a dead letter, is no longer open. The API sets `interrupted` when the job
    of the driver ends before the attempt does.
    """

    run_id: str
    pipeline: str
    scope: str
    batch: int
    attempt: int = 1
    state: RunState
    started: Timestamp
    finished: Timestamp | None = None
    events: int = 0
    rows: int | None = None
    seqs: list[tuple[int, int]] = []
    error: str | None = None
    dead_letter: str | None = None
    number: int | None = None


class BatchEnded(WireModel):
    """The newest batch of a scope whose runs have all ended: the number of events that it read, and its duration."""

    scope: str
    read: int
    seconds: float


class RunReports(WireModel):
    """Several runs, and the end of a batch, stored in one commit."""

    runs: list[RunReport]
    ended: BatchEnded | None = None


class Redelivery(WireModel):
    """An event that a trigger fired on after it was stored, or a dead letter of a pipeline that is retried.

    With a `trigger`: it fired on the event `seq` after the triggers `before`. With a `dead_letter`: `pipeline` takes `seqs` again, in the
    order and at the positions of its `slice`, if it has one.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    id: int
    seq: int
    trigger: str | None = None
    before: list[str] = []
    dead_letter: str | None = None
    scope: str | None = None
    pipeline: str | None = None
    seqs: list[tuple[int, int]] = []
    slice: bytes | None = None


class Redeliveries(WireModel):
    """All requested redeliveries, in order of `id`."""

    redeliveries: list[Redelivery]


class GetEventsBySeq(WireModel):
    """POST /execution/events/batch-get: the seqs of some events, as closed ranges in ascending order."""

    seqs: list[tuple[int, int]]
