"""The items that a triggerer stores: events, dead letters, spills and receipts. POST /execution/triggers/events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from pydantic import ConfigDict, Field

from headrace.core.matching.envelope import MAX_TEXT, MAX_TYPE
from headrace.wire.base import Timestamp, WireModel
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.receipts import Receipt

ItemStatus = Literal["stored", "duplicate", "fenced", "invalid"]
ReceiptStatus = Literal[ItemStatus, "unknown_subscriber_set"]
DeadLetterKind = Literal["malformed", "missing_field", "wrong_field", "rejected", "failed", "unserialisable"]


# A dataclass, because a triggerer creates one for each event: a third of the time of a model. Only the API, which parses it, checks limits.
@dataclass(slots=True, kw_only=True)
class EventItem:
    """One event to store. `payload` is JSON text that the API does not parse; `firings` are the ids of the triggers that fired."""

    __pydantic_config__: ClassVar[ConfigDict] = WireModel.model_config

    subject: str | None = None
    follows: str | None = None
    trace: str | None = None
    stream: str | None = None
    lane: str | None = None
    position: int | None = None
    id: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
    source: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
    type: Annotated[str, Field(min_length=1, max_length=MAX_TYPE)]
    occurred: Timestamp | None = None
    payload: str
    firings: Annotated[list[int], Field(min_length=1)]


class DeadLetterItem(WireModel):
    """One raw event that could not become an event. `raw` is its text, with U+FFFD for bytes that are not UTF-8."""

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

    `epochs` has the epoch of the sender's lease for each named trigger. A receipt covers raw events whose answers earlier batches stored. A
    receipt that begins before the recorded offset of its lane is a redelivery and changes nothing.
    """

    epochs: dict[int, int]
    events: list[EventItem] = []
    dead_letters: list[DeadLetterItem] = []
    spills: list[SpillItem] = []
    receipts: list[Receipt] = []

    def encode(self) -> bytes:
        """Return the batch as JSON, in a fifth of the time that pydantic takes."""
        return _encoder.encode(self)


_encoder: Final = msgspec.json.Encoder(enc_hook=vars)


class BatchStored(WireModel):
    """One status for each event, dead letter, spill and receipt, in the order of the request."""

    events: list[ItemStatus]
    dead_letters: list[ItemStatus]
    spills: list[ItemStatus] = []
    receipts: list[ReceiptStatus] = []


class WaitingEvent(WireModel):
    """One event that waits for its leader, and its waiting time so far (seconds)."""

    seq: int
    seconds: float


class ScopeReport(WireModel):
    """The report of a pipeline on its scope: its last batch, hold times (counts by HOLD_BUCKETS), and the longest waits.

    `held` counts events that batching holds back. `hold_seconds` is the sum of all finished waits. The last batch
    read `read` events and took `seconds`.
    """

    read: int = 0
    released: int = 0
    seconds: float = 0.0
    held: int = 0
    holds: list[int] = []
    hold_seconds: float = 0.0
    waits: list[WaitingEvent] = []
    lookback: float | None = None


HOLD_BUCKETS = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0)
"""Upper bounds of the buckets of hold times (seconds). One more bucket has the longer times."""

CLOCK_STEP = 5.0
"""The largest step of the clock of a pipeline's scope in one batch (seconds)."""


class Cursor(WireModel):
    """The progress of a scope in the log, and the size of its ordering. Plans contain it, and a lease returns it.

    Events after `low_watermark` may be read again, so the log retains them. None means the cursor itself. `last_redelivery_id` is the last
    redelivery that was read.
    """

    cursor: int = Field(ge=0)
    batch: int = Field(ge=0)
    ordered: int = 0
    waiting: int = 0
    lost: int = 0
    late: int = 0
    cycles: int = 0
    low_watermark: int | None = None
    last_redelivery_id: int = 0
    report: ScopeReport | None = None


class LogHead(WireModel):
    """GET /execution/events/head: the last `seq` of the log (0 if it is empty), the first `seq` that is not pruned, and the API's clock.

    From `first` on, the log has no gap. Some earlier events may exist for scopes that still need them.
    """

    head: int
    first: int
    now: Timestamp


class LogPosition(WireModel):
    """GET /execution/events/wait: the last `seq` of the log, and the id of the last redelivery."""

    head: int
    last_redelivery_id: int
