"""What a triggerer has stored: events, dead letters, spills and receipts. POST /execution/triggers/events."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.receipts import Receipt

ItemStatus = Literal["stored", "duplicate", "fenced", "invalid"]
ReceiptStatus = Literal[ItemStatus, "unknown_subscriber_set"]
DeadLetterKind = Literal["malformed", "missing_field", "wrong_field", "rejected", "failed", "unserialisable"]


class EventItem(WireModel):
    """One event to store. `payload` is JSON text that the api never parses; `firings` are the ids of the triggers that fired."""

    id: str = Field(min_length=1, max_length=1000)
    source: str = Field(min_length=1, max_length=1000)
    type: str = Field(min_length=1, max_length=200)
    subject: str | None = None
    occurred: Timestamp | None = None
    follows: str | None = None
    payload: str
    stream: str | None = None
    lane: str | None = None
    position: int | None = None
    trace: str | None = None
    firings: list[int] = Field(min_length=1)


class DeadLetterItem(WireModel):
    """One raw event given up on before it became an event. `raw` is its text, with U+FFFD where it was not UTF-8."""

    id: str = Field(min_length=1, max_length=1000)
    kind: DeadLetterKind
    reason: str
    stream: str
    lane: str | None = None
    position: int | None = None
    raw: str
    triggers: list[int]
    attempts: int = 1
    traceback: list[str] = []


class EventBatch(WireModel):
    """Events, dead letters, spills and receipts, stored in one commit.

    `epochs` gives, for each trigger named, the epoch of the sender's lease. A receipt tells of raw events whose answers earlier batches
    stored; one whose stretch begins before what is recorded is a redelivery, and changes nothing.
    """

    epochs: dict[int, int]
    events: list[EventItem] = []
    dead_letters: list[DeadLetterItem] = []
    spills: list[SpillItem] = []
    receipts: list[Receipt] = []


class BatchStored(WireModel):
    """One status for each event, each dead letter, each spill and each receipt, in the order they were sent."""

    events: list[ItemStatus]
    dead_letters: list[ItemStatus]
    spills: list[ItemStatus] = []
    receipts: list[ReceiptStatus] = []


class WaitingEvent(WireModel):
    """One event that waits for its leader, for `seconds` so far."""

    seq: int
    seconds: float


class ScopeReport(WireModel):
    """What a pipeline tells of its scope: its last batch, how long events waited so far (counts by HOLD_BUCKETS), and who waits longest.

    `held` are events that batching holds back; `longest` is the longest wait of those that wait (seconds), `hold_seconds` the sum of all
    that is over. The last batch read `read` events and took `seconds`.
    """

    read: int = 0
    released: int = 0
    seconds: float = 0.0
    held: int = 0
    longest: float = 0.0
    holds: list[int] = []
    hold_seconds: float = 0.0
    waits: list[WaitingEvent] = []
    lookback: float | None = None


HOLD_BUCKETS = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0)
"""Upper bounds (seconds) of the buckets of hold times; one more is for what waited longer."""

CLOCK_STEP = 5.0
"""The most that the clock of a pipeline's scope goes forward in one batch (seconds)."""


class Cursor(WireModel):
    """How far a scope has read the log, and what its ordering holds: in each plan, and in the answer to a lease.

    What comes after `kept` may be read again: the log must keep it. Nothing before the cursor, if it is not given. `again` is the last
    redelivery that was read.
    """

    cursor: int = Field(ge=0)
    batch: int = Field(ge=0)
    ordered: int = 0
    waiting: int = 0
    lost: int = 0
    late: int = 0
    cycles: int = 0
    kept: int | None = None
    again: int = 0
    report: ScopeReport | None = None


class LogHead(WireModel):
    """GET /execution/events/head: the last `seq` of the log (0: empty), the first after what is forgotten, and the api's clock.

    From `first` on the log has no gap; some events before it may be kept too, for those who asked for them.
    """

    head: int
    first: int
    now: Timestamp


class LogNews(WireModel):
    """GET /execution/events/news: the last `seq` of the log, and the id of the last redelivery."""

    head: int
    again: int
