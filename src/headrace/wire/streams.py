"""What a triggerer says of its shared streams in each heartbeat."""

from __future__ import annotations

from headrace.wire.model import Wire


class LaneReport(Wire):
    """One lane: the last position read and the last advanced; its end and what the upstream has committed, where that is known."""

    lane: str
    read: int | None = None
    advanced: int | None = None
    end: int | None = None
    committed: int | None = None
    outstanding: int = 0


class StreamReport(Wire):
    """One shared stream: counts since the job started, and the lanes that are open (at most 100, the furthest behind first)."""

    stream: str
    state: str
    read: int = 0
    advanced: int = 0
    outstanding: int = 0
    rejected: int = 0
    filtered: int = 0
    failed: int = 0
    lanes_open: int = 0
    lanes: list[LaneReport] = []
    oldest_unresolved: float | None = None
    held_by: str | None = None
