"""What is to be stored and is not yet, in order, bounded: what triggers fired, and the receipts of what was stored before."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from sys import getsizeof
from typing import TypeAlias

from headrace.core.memory import MemoryBudget
from headrace.wire.backlog import SpillItem
from headrace.wire.custody import Receipt
from headrace.wire.events import DeadLetterItem, EventItem, ReceiptStatus

Item: TypeAlias = EventItem | DeadLetterItem | SpillItem | Receipt

FEW = 128
"""So many spills may travel in any batch."""

_RECEIPT_BYTES = 256  # more or less; what counts is that they count


def triggers_of(item: Item) -> Sequence[int]:
    """Return the triggers that an item names: it is stored only while this job may speak for all of them."""
    if isinstance(item, EventItem):
        return item.firings
    return [*item.owed, *(answers.trigger_id for answers in item.answers)] if isinstance(item, Receipt) else item.triggers


@dataclass(slots=True, eq=False)
class Pending:
    """One item to store. `seq` is what the shared stream waits for, `stored` who else does; None: nobody waits.

    `order` is its place in the outbox, which it keeps when it is put back.
    """

    item: Item
    seq: int | None = None
    stored: asyncio.Future[ReceiptStatus] | None = None
    order: int = 0

    def settle(self, status: ReceiptStatus) -> None:
        """Tell who waits what became of the item."""
        if self.stored is not None and not self.stored.done():
            self.stored.set_result(status)


class Outbox:
    """A queue whose `put` never waits, and whose `room` does.

    Shared streams bound what they have outstanding, so they `put`; triggers that poll alone wait for `room` after each event.
    Spills queue apart: a trigger that is stuck spills its whole queue at once, and what the others fired must not wait behind that.
    A spill overtakes nothing: were it durable before an older item of its trigger, a crash would bring that item after the spill.
    """

    def __init__(self, bound: int = 8192, budget: MemoryBudget | None = None) -> None:
        self._bound = bound
        self._last = 0
        self.budget = budget or MemoryBudget()
        self.held = 0
        """The bytes of what is queued."""
        self._items: deque[Pending] = deque()
        self._spills: deque[Pending] = deque()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._items) + len(self._spills)

    def __iter__(self) -> Iterator[Pending]:
        yield from self._items
        yield from self._spills

    def put(self, pending: Pending) -> None:
        """Add one item."""
        self._last += 1
        pending.order = self._last
        (self._spills if isinstance(pending.item, SpillItem) else self._items).append(pending)
        self._weigh(_held(pending.item))
        self._filled.set()

    def put_first(self, pending: Pending) -> None:
        """Add an item that nothing queued must come before: an upstream waits for it, and what it tells of is stored already."""
        self._items.appendleft(pending)
        self._weigh(_held(pending.item))
        self._filled.set()

    def put_back(self, pendings: Iterable[Pending]) -> None:
        """Put items that were taken back to where they were: before all that was added after them."""
        back = list(pendings)
        if not back:
            return
        spills = [one for one in back if isinstance(one.item, SpillItem)]
        items = [one for one in back if not isinstance(one.item, SpillItem)]
        self._spills = deque(sorted(chain(spills, self._spills), key=attrgetter("order")))
        self._items = deque(sorted(chain(items, self._items), key=attrgetter("order")))
        self._weigh(sum(_held(one.item) for one in back))
        self._filled.set()

    @property
    def is_full(self) -> bool:
        """Whether `room` waits."""
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until fewer than `bound` items are queued, in less than half of the budget's bytes."""
        await self._room.wait()

    async def take(self, most: int, most_bytes: int) -> list[Pending]:
        """Wait for at least one item; return at most `most` items and, beyond the first, at most `most_bytes` of payload."""
        await self._filled.wait()
        taken: list[Pending] = []
        # Where both come without end, a quarter or more is spills that may travel, and a half or more is others.
        size = _move(self._items, taken, most - min(len(self._spills), most // 4), most_bytes, 0)
        before = self._items[0].order if self._items else None
        size = _move(self._spills, taken, min(most, len(taken) + max(FEW, len(taken))), most_bytes, size, before)
        _move(self._items, taken, most, most_bytes, size)
        if not self:
            self._filled.clear()
        self._weigh(-sum(_held(pending.item) for pending in taken))
        return taken

    def _weigh(self, change: int) -> None:
        self.held += change
        self.budget.change(change)
        if len(self) < self._bound and self.held < self.budget.limit // 2:
            self._room.set()
        else:
            self._room.clear()


def _move(queue: deque[Pending], taken: list[Pending], most: int, most_bytes: int, size: int, before: int | None = None) -> int:
    """Move items that were put before order `before`, while fewer than `most` are taken and all fit in `most_bytes`; return the bytes."""
    while queue and len(taken) < most and (before is None or queue[0].order < before):
        more = _size(queue[0].item)
        if taken and size + more > most_bytes:
            break
        size += more
        taken.append(queue.popleft())
    return size


def _held(item: Item) -> int:
    """Return how many bytes the text of an item holds in memory: of one that is not ASCII up to four for each character."""
    if isinstance(item, Receipt):
        return _RECEIPT_BYTES
    return getsizeof(item.payload if isinstance(item, EventItem) else item.raw)


def _size(item: Item) -> int:
    if isinstance(item, Receipt):
        return _RECEIPT_BYTES
    return len(item.payload) if isinstance(item, EventItem) else len(item.raw)
