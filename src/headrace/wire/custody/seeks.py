"""Seeks: an operator moves the position at which an upstream is read next.

A *position* here is that of the message that is read next. A *plan* has one seek for each stream of the upstream: one, or one per shard.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel

MAX_SHARDS: Final = 256
MAX_LANES: Final = 10_000
"""Lanes of one stream that a plan moves."""
MAX_LANE_CHARS: Final = 1_000
EXPIRY_SECONDS: Final = 3_600
"""Time after which a lane that no triggerer has begun to move is not moved any more."""

SeekState = Literal["planned", "moving", "done", "replaced", "expired"]
Position = Annotated[int, Field(ge=0, lt=2**63)]
LaneName = Annotated[str, Field(min_length=1, max_length=MAX_LANE_CHARS)]


class LanePosition(WireModel):
    """A lane, and the position of the message to read next."""

    lane: LaneName
    position: Position


class PlannedLane(LanePosition):
    """A lane that moves. With `forward`, it is not moved back if it is read past the position by then."""

    forward: bool = False


class StreamSeek(WireModel):
    """The lanes of one stream that move."""

    stream: str
    lanes: list[PlannedLane] = Field(min_length=1, max_length=MAX_LANES)


class PlanSeek(WireModel):
    """POST /api/v1/upstreams/seeks: move lanes of one upstream when a triggerer opens its streams next.

    `plan` is an id that the sender chooses. `target` is what the operator requested, and `by` the operator.
    """

    plan: str = Field(pattern=r"^[0-9a-f]{16}$")
    target: str = Field(min_length=1, max_length=2_000)
    by: str = Field(default="", max_length=200)
    streams: list[StreamSeek] = Field(min_length=1, max_length=MAX_SHARDS)


class SeekLane(WireModel):
    """A lane of a seek. `previous` is the position before the seek, or null if the lane was not read or is not begun.

    `begun` is when the triggerer recorded that it moves the lane. `moved` is true after the upstream has stored the position.
    """

    lane: str
    position: int
    previous: int | None = None
    begun: Timestamp | None = None
    moved: bool = False


class SeekStatus(WireModel):
    """A seek of one stream. `skipped` and `read_again` are the sizes of the ranges of positions between before and after.

    They are null for Redis: its positions are made of times, and do not count entries.

    `state` is `planned` until a triggerer opens the stream, `moving` until all lanes are moved, then `done`. A later plan has `replaced`
    it, or it `expired` before a triggerer began to move all lanes.
    """

    id: int
    plan: str
    stream: str
    state: SeekState
    target: str
    who: str
    planned: Timestamp
    expires: Timestamp
    lanes: list[SeekLane]
    skipped: int | None
    read_again: int | None


class SeekList(WireModel):
    """GET /api/v1/upstreams/seeks: the seeks of all upstreams or of one plan, the newest first."""

    seeks: list[SeekStatus]


class PendingSeek(WireModel):
    """A planned seek, as the triggerer gets it that opens the stream: the lanes that are not moved yet."""

    id: int
    lanes: list[LanePosition]


class LaneMove(WireModel):
    """A lane that a triggerer moves now, from its `previous` position, or null if it has none."""

    lane: LaneName
    previous: Position | None
    position: Position


class BeginSeek(WireModel):
    """POST /execution/streams/seeks/begin: record the lanes that the triggerer moves, before the upstream is changed."""

    stream: str
    seek: int
    lanes: list[LaneMove] = Field(max_length=MAX_LANES)


class SeekBegun(WireModel):
    """The lanes to move, with their recorded positions. Lanes are missing if the seek is replaced, or if they are moved already."""

    lanes: list[LanePosition]


class FinishSeek(WireModel):
    """POST /execution/streams/seeks/finish: record that the upstream has stored the positions of these lanes."""

    stream: str
    seek: int
    lanes: list[LaneName] = Field(max_length=MAX_LANES)


class LaneSeek(WireModel):
    """A range of positions that a seek skipped or that is read again, for the audit."""

    lane: str
    what: Literal["skipped", "read again"]
    first: int
    last: int
    who: str
    at: Timestamp
