"""The report of a triggerer about its shared streams, sent with each heartbeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from headrace.core.ledger.counters import COUNTER_HELP, StreamCounters
from headrace.core.matching.leaf_failures import MAX_PATH_CHARS
from headrace.wire.base import WireModel

MAX_SAMPLES: Final = 1_000_000


class LaneReport(WireModel):
    """One lane: the last position read, the last position advanced, and, if known, its end and the position that the upstream has
    committed.
    """

    lane: str
    read: int | None = None
    advanced: int | None = None
    end: int | None = None
    committed: int | None = None
    outstanding: int = 0
    error: str | None = None


class RetryReport(WireModel):
    """One raw event on which a trigger failed `attempts` times. The retry is due in `seconds`, and its successors in the lane wait for it.

    `trigger` is the trigger's name. Jobs do not send it.
    """

    trigger_id: int
    trigger: str = ""
    lane: str
    position: int | None = None
    attempts: int
    seconds: float
    error: str


def _known_counters(value: Any) -> Any:
    return {name: value[name] for name in COUNTER_HELP if name in value} if isinstance(value, Mapping) else value


Counters = Annotated[StreamCounters, BeforeValidator(_known_counters)]
"""The counters of a stream by name.

Unknown names are ignored and missing ones are 0, so that triggerers of another version keep their jobs.
"""


class CopyReport(WireModel):
    """The copies of a stream's dead letters: their target at the broker, and why the last attempt failed, until one succeeds."""

    target: str
    error: str | None = None


class LeafFailures(WireModel):
    """The number of sampled raw events that failed at a path of the pattern of a watch."""

    path: str = Field(max_length=MAX_PATH_CHARS)
    failed: int = Field(ge=0, le=MAX_SAMPLES)


class WatchSample(WireModel):
    """How often each field of the pattern of a watch failed on the raw events that were sampled of late.

    `leaves` has at most 10 paths, the most failures first.
    """

    trigger_id: int
    samples: int = Field(ge=0, le=MAX_SAMPLES)
    matched: int = Field(ge=0, le=MAX_SAMPLES)
    leaves: list[LeafFailures] = Field(max_length=10)


class StreamReport(WireModel):
    """One shared stream: its counters since the job started, and its state now.

    `outstanding` raw events are not advanced, and `in_flight` lanes are being advanced. `unread` messages of the upstream are not read,
    or null if the upstream does not report their number. `lanes` has at most 100 of the `lanes_open` lanes,
    those furthest behind first. The `error` of a lane says why its last advance failed, until one succeeds, or why the lane cannot be read.
    `left_behind` tasks in the upstream's code still run although they were cancelled. `lanes_retrying` lanes wait, for one trigger each,
    for a retry of a raw event; `retrying` are at most 5 of these, the first due first. `copies` is null if dead letters are not copied.
    """

    stream: str
    state: str
    counters: Counters = StreamCounters()
    outstanding: int = 0
    unread: int | None = None
    in_flight: int = 0
    lanes_open: int = 0
    lanes: list[LaneReport] = []
    oldest_unresolved: float | None = None
    held_by: str | None = None
    oldest_lane: str | None = None
    left_behind: int = 0
    lanes_retrying: int = 0
    retrying: list[RetryReport] = []
    copies: CopyReport | None = None
