"""The ledger of custody: for every stretch of a lane, how each trigger answered it. Recorded before the broker is advanced."""

from __future__ import annotations

from pydantic import Field

from headrace.wire.model import Timestamp, Wire


class Answers(Wire):
    """How one trigger answered the raw events of a stretch; those it was owed and did not name here it filtered."""

    trigger_id: int
    fired: int = 0
    rejected: int = 0
    spilled: int = 0
    dead_lettered: int = 0
    failed: int = 0


class Receipt(Wire):
    """A stretch of one lane that is about to be advanced.

    `after` is the position before the stretch (None: the lane begins here), `last` its last; `read` counts its raw events. `owed` are the
    triggers that had to answer all of it; `answers` names those of them that did more than filter.
    """

    stream: str
    lane: str
    after: int | None
    last: int
    read: int = Field(gt=0)
    owed: list[int]
    answers: list[Answers] = []


class Receipts(Wire):
    """POST /execution/streams/receipts: stored in one commit. A stretch that begins before what is recorded is a redelivery: a no-op."""

    epochs: dict[int, int]
    receipts: list[Receipt]


class LaneMark(Wire):
    """How far the custody of one lane is recorded."""

    lane: str
    last: int


class LaneMarks(Wire):
    """GET /execution/streams/marks?stream=: where each lane's custody ends, so that redeliveries are not counted twice."""

    marks: list[LaneMark]


class TriggerAudit(Wire):
    """One trigger's books of one stream: `read` must equal the sum of all answers and what is pending."""

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
    balanced: bool


class LaneAudit(Wire):
    """A lane whose custody has a gap, or that the upstream sees otherwise: `recorded` is ours, `committed` the upstream's own."""

    lane: str
    recorded: int | None
    committed: int | None
    problem: str


class StreamAudit(Wire):
    """The books of one stream."""

    stream: str
    read: int
    lanes: int
    triggers: list[TriggerAudit]
    problems: list[LaneAudit]


class Audit(Wire):
    """GET /api/v1/audit: every stream's books at one moment; `clean` only if all balance and no lane has a problem."""

    at: Timestamp
    clean: bool
    streams: list[StreamAudit]
