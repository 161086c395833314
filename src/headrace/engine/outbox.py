"""What is to be stored and is not yet, in order, bounded: what triggers fired, and the receipts of what was stored before."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from headrace.wire.backlog import SpillItem
from headrace.wire.custody import Receipt
from headrace.wire.events import DeadLetterItem, EventItem, ItemStatus

Item: TypeAlias = EventItem | DeadLetterItem | SpillItem | Receipt

_RECEIPT_BYTES = 256  # more or less; what counts is that they count


@dataclass(frozen=True, slots=True)
class Pending:
    """One item to store. `seq` is what the shared stream waits for, `stored` who else does; None: nobody waits."""

    item: Item
    seq: int | None = None
    stored: asyncio.Future[ItemStatus] | None = None

    def settle(self, status: ItemStatus) -> None:
        """Tell who waits what became of the item."""
        if self.stored is not None and not self.stored.done():
            self.stored.set_result(status)


class Outbox:
    """A queue whose `put` never waits, and whose `room` does.

    Shared streams bound what they have outstanding, so they `put`; triggers that poll alone wait for `room` after each event.
    """

    def __init__(self, bound: int = 8192) -> None:
        self._bound = bound
        self._items: deque[Pending] = deque()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, pending: Pending) -> None:
        """Add one item."""
        self._items.append(pending)
        self._filled.set()
        if len(self._items) >= self._bound:
            self._room.clear()

    def put_first(self, pending: Pending) -> None:
        """Add an item that nothing queued must come before: an upstream waits for it, and what it tells of is stored already."""
        self._items.appendleft(pending)
        self._filled.set()

    async def room(self) -> None:
        """Wait until fewer than `bound` items are queued."""
        await self._room.wait()

    async def take(self, most: int, most_bytes: int) -> list[Pending]:
        """Wait for at least one item; return at most `most` items and, beyond the first, at most `most_bytes` of payload."""
        await self._filled.wait()
        taken: list[Pending] = []
        size = 0
        while self._items and len(taken) < most:
            size += _size(self._items[0].item)
            if taken and size > most_bytes:
                break
            taken.append(self._items.popleft())
        if not self._items:
            self._filled.clear()
        if len(self._items) < self._bound:
            self._room.set()
        return taken


def _size(item: Item) -> int:
    if isinstance(item, Receipt):
        return _RECEIPT_BYTES
    return len(item.payload) if isinstance(item, EventItem) else len(item.raw)
