"""What a triggerer says of its shared streams in each heartbeat."""

from __future__ import annotations

from headrace.wire.base import WireModel


class LaneReport(WireModel):
    """One lane: the last position read and the last advanced; its end and what the upstream has committed, where that is known."""

    lane: str
    read: int | None = None
    advanced: int | None = None
    end: int | None = None
    committed: int | None = None
    outstanding: int = 0
    error: str | None = None


class RetryReport(WireModel):
    """One raw event that a trigger failed on `attempts` times: it comes again in `seconds`. What follows it in its lane waits with it.

    `trigger` is the trigger's name, which jobs do not say.
    """

    trigger_id: int
    trigger: str = ""
    lane: str
    position: int | None = None
    attempts: int
    seconds: float
    error: str


class StreamReport(WireModel):
    """One shared stream: counts since the job started, and the lanes that are open (at most 100, the furthest behind first).

    `spilled` counts raw events that went into a backlog; `advances` and `advance_errors` the calls of advance that succeeded and that
    failed or hung, `advance_seconds` the time of those that succeeded; `ack_seconds` is the sum over the resolved raw events, `resolved`,
    of the time from publishing to the last answer; `in_flight` is how many lanes are being advanced now. `error` of a lane is why its
    last advance failed, until one succeeds, or why it cannot be read. `left_behind`: tasks in the upstream's code that run on although
    they were cancelled. `lanes_retrying` is how many lanes wait, for one trigger each, for a raw event to retry;
    `retrying` are at most 5 of these, the first that is due first.
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
    lanes: list[LaneReport] = []
    oldest_unresolved: float | None = None
    held_by: str | None = None
    oldest_lane: str | None = None
    left_behind: int = 0
    lanes_retrying: int = 0
    retrying: list[RetryReport] = []
