"""What the ledger keeps books of: entries in lanes, and who owes them an answer. Only the ledger changes these."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any


class Entry:
    """One raw event on the books, with how many obligations are open and how the others ended."""

    __slots__ = ("acked", "derived", "failed", "lane", "payload", "pending", "position", "published", "raw", "rejected")

    def __init__(self, raw: Any, payload: Any, lane: Lane, position: int | None, published: float) -> None:
        self.raw = raw
        self.payload = payload
        self.lane = lane
        self.position = position
        self.published = published
        self.pending = self.acked = self.rejected = self.failed = 0
        self.derived = False


class Lane:
    """One open lane: its entries in the order of publication, and how far it has been read and advanced."""

    __slots__ = ("advanced", "busy", "entries", "in_flight", "key", "read")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.entries: deque[Entry] = deque()
        self.busy = False
        self.in_flight = 0
        self.read: int | None = None
        self.advanced: int | None = None

    @property
    def outstanding(self) -> int:
        """How many raw events of the lane are not advanced."""
        return len(self.entries) + self.in_flight


class Binding:
    """What a reader derived from one entry, until all of it is confirmed."""

    __slots__ = ("closed", "entry", "reader", "rejected", "seqs")

    def __init__(self, reader: Reader, entry: Entry) -> None:
        self.reader = reader
        self.entry = entry
        self.seqs: set[int] = set()
        self.closed = False
        self.rejected = False


class Reader:
    """One subscriber: what waits for it, what it is at, and what it derived that is not yet confirmed. `idle`: it found nothing to read."""

    __slots__ = ("binding", "idle", "open", "queue", "settled", "trigger_id", "unconfirmed")

    def __init__(self, trigger_id: int) -> None:
        self.trigger_id = trigger_id
        self.queue: deque[Entry] = deque()
        self.open: Entry | None = None
        self.settled = False
        self.binding: Binding | None = None
        self.unconfirmed: dict[Binding, None] = {}
        self.idle = False

    def oldest(self) -> Entry | None:
        """Return the oldest entry that the reader owes an answer to."""
        if self.unconfirmed:
            return next(iter(self.unconfirmed)).entry
        if self.open is not None and not self.settled:
            return self.open
        return self.queue[0] if self.queue else None

    def has_not_ended(self, entry: Entry) -> bool:
        """Whether the reader is at `entry` or has not come to it; linear in what waits for it."""
        return (entry is self.open and not self.settled) or entry in self.queue


@dataclass(slots=True)
class Claim:
    """What declared triggers, `weight` of them, owe: one thing to store."""

    entry: Entry
    weight: int
    rejected: bool = False


@dataclass(slots=True)
class Counts:
    """Raw events: published, advanced, and resolved with nothing derived, with a rejection, with a failure."""

    read: int = 0
    advanced: int = 0
    filtered: int = 0
    rejected: int = 0
    failed: int = 0
