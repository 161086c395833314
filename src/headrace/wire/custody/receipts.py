"""The ledger of custody: for every stretch of a lane, how each trigger answered it. Recorded before the broker is advanced."""

from __future__ import annotations

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel

MAX_MEMBERS = 10_000
"""Triggers that one call may add to a subscriber set, or take from it.

A larger difference takes several subscriber sets, each the base of the next.
"""

MAX_LANES = 1_000
"""Lanes that one call may name."""

DIGEST = r"^[0-9a-f]{32}$"


class Answers(WireModel):
    """How one trigger answered the raw events of a stretch; those it was owed and did not name here it filtered."""

    trigger_id: int
    fired: int = 0
    rejected: int = 0
    spilled: int = 0
    dead_lettered: int = 0
    failed: int = 0


class Receipt(WireModel):
    """A stretch of one lane that is about to be advanced.

    `after` is the position before the stretch (None: the lane begins here), `last` its last; `read` counts its raw events. `owed` are the
    triggers that had to answer all of it, or `subscriber_set` is the digest of their subscriber set and `owed` is empty; `answers` names
    those of them that did
    more than filter. The status `unknown_subscriber_set` says that the subscriber set is not defined (any more): nothing was recorded.
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

    It is the subscriber set `base` (None: the empty set) with the triggers `joined` and without those `departed`. `digest` is the sum of
    its members' hashes modulo 2**128 (the 16 bytes of BLAKE2b of each id as 8 bytes, big-endian), in hexadecimal.
    """

    stream: str
    digest: str = Field(pattern=DIGEST)
    base: str | None = Field(default=None, pattern=DIGEST)
    joined: list[int] = Field(default=[], max_length=MAX_MEMBERS)
    departed: list[int] = Field(default=[], max_length=MAX_MEMBERS)


class SubscriberSetDefined(WireModel):
    """Whether the subscriber set is defined now; if not, its base is not known (any more)."""

    defined: bool


class LaneMark(WireModel):
    """How far the custody of one lane is recorded."""

    lane: str
    last: int


class LookUpMarks(WireModel):
    """POST /execution/streams/marks: how far the custody of these lanes of a stream is recorded."""

    stream: str
    lanes: list[str] = Field(max_length=MAX_LANES)


class LaneMarks(WireModel):
    """Where the custody of those of the lanes ends that have any, so that redeliveries are not counted twice."""

    marks: list[LaneMark]


class LookUpBooks(WireModel):
    """POST /execution/streams/books: what the event log has of a stream."""

    stream: str


class LogMark(WireModel):
    """An event log, a stream, and how many receipts of it the log had when the upstream was advanced last; an upstream keeps it."""

    log: str = Field(pattern=r"^[0-9a-f]{16}$")
    stream: str
    receipts: int = Field(ge=0, lt=2**63)


class StreamBooks(WireModel):
    """Which event log this is, and how many receipts of the stream it has. `adopted`: the mark that it goes on from, of another log."""

    log: str
    receipts: int
    adopted: LogMark | None = None


class StreamAdopted(WireModel):
    """The event log goes on with a stream. `missing`: receipts that a restored database does not have, or None if another log has them."""

    missing: int | None


class TriggerAudit(WireModel):
    """One trigger's books of one stream: `read` must equal the sum of all answers and what is pending.

    `dropped` was kept in its backlog and dropped there, by a person or by retention.
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
    """A lane whose custody has a gap, or that the upstream sees otherwise: `recorded` is ours, `committed` the upstream's own."""

    lane: str
    recorded: int | None
    committed: int | None
    problem: str


class StreamAudit(WireModel):
    """The books of one stream. Where it has very many triggers, one line sums up those that balance and are not shown."""

    stream: str
    read: int
    lanes: int
    triggers: list[TriggerAudit]
    problems: list[LaneAudit]


class Audit(WireModel):
    """GET /api/v1/audit: every stream's books at one moment; `clean` only if all balance and no lane has a problem."""

    at: Timestamp
    clean: bool
    streams: list[StreamAudit]
