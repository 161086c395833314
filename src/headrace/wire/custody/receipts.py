"""Receipts: how each trigger answered each range of a lane. They are stored before the broker is advanced."""

from __future__ import annotations

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.custody.seeks import LaneSeek, PendingSeek

MAX_MEMBERS = 10_000
"""Triggers that one call may add to a subscriber set or remove from it.

A larger difference takes several subscriber sets, each the base of the next.
"""

MAX_LANES = 1_000
"""Lanes that one call may name."""

DIGEST = r"^[0-9a-f]{32}$"


class Answers(WireModel):
    """The answers of one trigger to the raw events of a range. It filtered all other raw events that it owed an answer."""

    trigger_id: int
    fired: int = 0
    rejected: int = 0
    spilled: int = 0
    dead_lettered: int = 0
    failed: int = 0


class Receipt(WireModel):
    """A range of one lane, recorded before the lane is advanced.

    `after` is the position before the range, or None at the beginning of the lane. `last` is the last position of the range, and `read` the
    number of its raw events. `owed` has the triggers that had to answer the whole range. Instead, `subscriber_set` may have the digest of
    their subscriber set, and `owed` is empty. `answers` has the triggers that did more than filter. The status `unknown_subscriber_set`
    means that the subscriber set is not defined and nothing was recorded.
    """

    stream: str
    lane: str
    after: int | None
    last: int
    read: int = Field(gt=0)
    owed: list[int]
    subscriber_set: str | None = Field(default=None, pattern=DIGEST)
    answers: list[Answers] = []


class SubscriberSetDefinition(WireModel):
    """POST /execution/streams/subscriber-sets: a set of triggers that owe answers of a stream together, as a difference from another.

    The set has the members of `base` (None: the empty set) and the triggers `joined`, without the triggers `departed`. `digest` is the sum
    of its members' hashes modulo 2**128 (the 16 bytes of BLAKE2b of each id as 8 bytes, big-endian), in hexadecimal.
    """

    stream: str
    digest: str = Field(pattern=DIGEST)
    base: str | None = Field(default=None, pattern=DIGEST)
    joined: list[int] = Field(default=[], max_length=MAX_MEMBERS)
    departed: list[int] = Field(default=[], max_length=MAX_MEMBERS)


class SubscriberSetDefined(WireModel):
    """Whether the subscriber set is defined now. If not, its base is unknown."""

    defined: bool


class LaneOffset(WireModel):
    """The recorded offset of one lane."""

    lane: str
    last: int


class FindLaneOffsets(WireModel):
    """POST /execution/streams/offsets: the recorded offsets of these lanes of a stream."""

    stream: str
    lanes: list[str] = Field(max_length=MAX_LANES)


class LaneOffsets(WireModel):
    """The recorded offsets of the lanes that have one. With them, redeliveries are not counted twice."""

    offsets: list[LaneOffset]


class CountReceipts(WireModel):
    """POST /execution/streams/receipt-count: the number of receipts of a stream in the event log."""

    stream: str


class LogMark(WireModel):
    """An event log, a stream, and the number of its receipts in the log at the last advance. The upstream stores it."""

    log: str = Field(pattern=r"^[0-9a-f]{16}$")
    stream: str
    receipts: int = Field(ge=0, lt=2**63)


class ReceiptCount(WireModel):
    """The identity of the event log, and its number of receipts of the stream.

    `adopted` is the mark of another log that this one continues. `seek` must be carried out before the stream is read.
    """

    log: str
    receipts: int
    adopted: LogMark | None = None
    seek: PendingSeek | None = None


class StreamAdopted(WireModel):
    """The event log continues the stream.

    `missing` counts receipts that a restored database does not have. It is null if another log has them.
    """

    missing: int | None


class TriggerAudit(WireModel):
    """The totals of one trigger in one stream. `read` must equal the sum of all answers and pending raw events.

    `dropped` counts raw events that a user or retention deleted from its backlog.
    """

    trigger: str
    read: int
    fired: int
    filtered: int
    rejected: int
    dead_lettered: int
    failed: int
    spilled: int
    settled: int
    pending: int
    dropped: int = 0
    balanced: bool


class LaneAudit(WireModel):
    """A lane whose receipts have a gap or differ from the upstream: `recorded` is from the log, `committed` from the upstream."""

    lane: str
    recorded: int | None
    committed: int | None
    problem: str


class StreamAudit(WireModel):
    """The totals of one stream. In a stream with very many triggers, one row sums up the balanced triggers.

    `seeks` has the ranges that an operator skipped or had read again, the newest first. They are not problems.
    """

    stream: str
    read: int
    lanes: int
    triggers: list[TriggerAudit]
    problems: list[LaneAudit]
    seeks: list[LaneSeek] = []


class Audit(WireModel):
    """GET /api/v1/audit: the totals of all streams at one time. `clean` is true if all of them balance and no lane has a problem."""

    at: Timestamp
    clean: bool
    streams: list[StreamAudit]
