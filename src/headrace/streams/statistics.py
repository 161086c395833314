"""What a shared stream has done, and what it waits for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headrace.core.ledger.obligations import StreamCounters


@dataclass(frozen=True, slots=True)
class LaneStatistics:
    """One open lane: the last position read and advanced, where it ends and what the upstream has as done (None: unknown).

    `outstanding`: raw events that are not advanced. `error`: why the last advance failed, until one succeeds, or why it cannot be read.
    """

    lane: str
    read: int | None
    advanced: int | None
    end: int | None
    committed: int | None
    outstanding: int
    error: str | None


@dataclass(frozen=True, slots=True)
class RetryStatistics:
    """One raw event that a trigger failed on `attempts` times; it comes again in `seconds`, and its lane waits with it."""

    trigger_id: int
    lane: str
    position: int | None
    attempts: int
    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """One shared stream. The counts are of raw events, since the hub was made, also across a stream that ended and began again.

    `filtered`: no subscriber fired on it; `rejected`, `failed`, `spilled`: at least one subscriber did. `ack_seconds` is the sum over the
    `resolved` ones of the time from publishing to the last answer; `advances` and `advance_errors` count calls that succeeded and that
    did not, `advance_seconds` is the time of those that did; `in_flight` is how many lanes are being advanced. `lanes`: at most 100, those
    furthest behind first. `oldest_unresolved`: the age in seconds of the oldest raw event that someone still owes an answer, `held_by`
    who, and `oldest_lane` where it is. `left_behind`: tasks in the upstream's code that run on although they were cancelled.
    `lanes_retrying` is how many lanes wait, for one trigger each, for a raw event to retry; `retrying` are the first 5.
    """

    stream: str
    state: str
    read: int = 0
    advanced: int = 0
    outstanding: int = 0
    rejected: int = 0
    filtered: int = 0
    failed: int = 0
    spilled: int = 0
    resolved: int = 0
    ack_seconds: float = 0.0
    advances: int = 0
    advance_errors: int = 0
    advance_seconds: float = 0.0
    in_flight: int = 0
    lanes_open: int = 0
    lanes: tuple[LaneStatistics, ...] = ()
    oldest_unresolved: float | None = None
    held_by: str | None = None
    oldest_lane: str | None = None
    left_behind: int = 0
    lanes_retrying: int = 0
    retrying: tuple[RetryStatistics, ...] = ()

    @classmethod
    def of(cls, stream: str, state: str, counts: StreamCounters, **more: Any) -> StreamStatistics:
        """Return the statistics with these counts."""
        return cls(stream, state, **asdict(counts), **more)
