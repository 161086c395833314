"""Statistics of one shared stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.core.ledger.counters import StreamCounters


@dataclass(frozen=True, slots=True)
class LaneStatistics:
    """One open lane: the last positions read and advanced, its end, and the committed position of the upstream, or None if unknown.

    `outstanding` raw events are not advanced. `error` says why the last advance failed, until one succeeds, or why the lane is unreadable.
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
    """One raw event on which a trigger failed `attempts` times. Its retry is due in `seconds`, and its lane waits with it."""

    trigger_id: int
    lane: str
    position: int | None
    attempts: int
    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """One shared stream: its counters since the manager was made, also across restarts of the stream, and its state now.

    `outstanding` raw events are not advanced, `in_flight` lanes are being advanced. `lanes`: at most 100, those furthest behind first.
    `oldest_unresolved` is the age in seconds of the oldest raw event that lacks an answer, `held_by` names who owes it and `oldest_lane`
    its lane. `unread` messages of the upstream are not read, or None if that is unknown.
    `left_behind` tasks in the upstream's code still run although they were cancelled. `lanes_retrying` lanes wait, for one
    trigger each, for a retry of a raw event; `retrying` are the first 5 of these.
    """

    stream: str
    state: str
    counters: StreamCounters = field(default_factory=StreamCounters)
    outstanding: int = 0
    in_flight: int = 0
    lanes_open: int = 0
    lanes: tuple[LaneStatistics, ...] = ()
    oldest_unresolved: float | None = None
    held_by: str | None = None
    oldest_lane: str | None = None
    unread: int | None = None
    left_behind: int = 0
    lanes_retrying: int = 0
    retrying: tuple[RetryStatistics, ...] = ()
