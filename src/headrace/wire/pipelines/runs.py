"""Runs: one call of a pipeline. POST /execution/runs. What a pipeline is given again. GET /execution/redeliveries."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from headrace.wire.base import Timestamp, WireModel

RunState = Literal["running", "succeeded", "failed"]


class RunReport(WireModel):
    """One run, now or at its end; the last report of a `run_id` counts. `seqs` are the events it took, as closed ranges.

    `letter` names the dead letter that its events become if it failed, and that is done with if it succeeded. `number` is the run's
    number in the plan of its batch: a run that succeeded, or that failed with a letter, is no longer open.
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
    letter: str | None = None
    number: int | None = None


class BatchEnded(WireModel):
    """The newest batch of a scope whose runs have all ended: how many events it read, and how long it took."""

    scope: str
    read: int
    seconds: float


class RunReports(WireModel):
    """Several runs, and the end of a batch, stored in one commit."""

    runs: list[RunReport]
    ended: BatchEnded | None = None


class Redelivery(WireModel):
    """What the log says once more: a trigger that fired on an event only later, or a dead letter of a pipeline that is tried again.

    With a `trigger`: it fired on the event `seq` after the triggers `before` had. With a `letter`: `pipeline` takes `seqs` again, in the
    order and at the positions of its `slice`, where the letter has one.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    id: int
    seq: int
    trigger: str | None = None
    before: list[str] = []
    letter: str | None = None
    scope: str | None = None
    pipeline: str | None = None
    seqs: list[tuple[int, int]] = []
    slice: bytes | None = None


class Redeliveries(WireModel):
    """Redeliveries in order of `id`; all that were requested."""

    redeliveries: list[Redelivery]


class PickEvents(WireModel):
    """POST /execution/events/pick: some events by their seqs, as closed ranges in ascending order."""

    seqs: list[tuple[int, int]]
