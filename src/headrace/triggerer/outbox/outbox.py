"""Items to store, in order, bounded: fired events, and the receipts of events that were stored before."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from operator import attrgetter
from sys import getsizeof
from typing import TypeAlias

from headrace.core.memory_budget import MemoryBudget
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import DeadLetterItem, EventItem, ReceiptStatus
from headrace.wire.custody.receipts import Receipt

Item: TypeAlias = EventItem | DeadLetterItem | SpillItem | Receipt

_RECEIPT_BYTES = 256  # more or less; what counts is that they count


def triggers_of(item: Item) -> Sequence[int]:
    """Return the triggers that an item names: it is stored only while this job may speak for all of them."""
    if isinstance(item, EventItem):
        return item.firings
    return [*item.owed, *(answers.trigger_id for answers in item.answers)] if isinstance(item, Receipt) else item.triggers


@dataclass(slots=True, eq=False)
class OutboxItem:
    """One item to store. `seq` is what the shared stream waits for, `stored` who else does; None if nobody waits.

    `order` is its place in the outbox, which it keeps when it is put back.
    """

    item: Item
    seq: int | None = None
    stored: asyncio.Future[ReceiptStatus] | None = None
    order: int = 0
    fenced_at: float | None = None
    """When it was fenced first, by the loop's clock."""

    def settle(self, status: ReceiptStatus) -> None:
        """Tell who waits what became of the item."""
        if self.stored is not None and not self.stored.done():
            self.stored.set_result(status)


class Outbox:
    """Two queues: of spills, and of all other items. `put` never waits, and `room` does.

    Shared streams bound what they have outstanding, so they `put`; triggers that poll alone wait for `room` after each event.
    A stuck trigger spills every raw event of its stream, and the other triggers' events must not wait behind these: spills travel alone.
    A spill overtakes nothing: were it durable before an older item of its trigger, a crash would bring that item after the spill.
    """

    def __init__(self, bound: int = 8192, budget: MemoryBudget | None = None) -> None:
        self._bound = bound
        self._last = 0
        self.budget = budget or MemoryBudget()
        self.held = 0
        """The bytes of what is queued, or fenced."""
        self._fenced: list[OutboxItem] = []
        self._items: deque[OutboxItem] = deque()
        self._spills: deque[OutboxItem] = deque()
        self._items_sent: Sequence[OutboxItem] = ()
        self._spills_sent: Sequence[OutboxItem] = ()
        self._filled = asyncio.Event()
        self._spilled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._items) + len(self._spills)

    def __iter__(self) -> Iterator[OutboxItem]:
        yield from self._items
        yield from self._spills

    @property
    def sent(self) -> Iterator[OutboxItem]:
        """What was taken and is not answered yet."""
        return chain(self._items_sent, self._spills_sent)

    @property
    def fenced(self) -> Sequence[OutboxItem]:
        """What was refused under its leases, and waits for others."""
        return self._fenced

    def fence(self, pending: OutboxItem) -> None:
        """Hold a taken item until `take_fenced`."""
        self._fenced.append(pending)
        self._weigh(_held(pending.item))

    def take_fenced(self) -> list[OutboxItem]:
        """Return what was fenced, and count it no more."""
        taken, self._fenced = self._fenced, []
        self._weigh(-sum(_held(pending.item) for pending in taken))
        return taken

    def put(self, pending: OutboxItem) -> None:
        """Add one item."""
        self._last += 1
        pending.order = self._last
        if isinstance(pending.item, SpillItem):
            self._spills.append(pending)
            self._spilled.set()
        else:
            self._items.append(pending)
            self._filled.set()
        self._weigh(_held(pending.item))

    def put_first(self, pending: OutboxItem) -> None:
        """Add an item that nothing queued must come before: an upstream waits for it, and what it tells of is stored already."""
        self._items.appendleft(pending)
        self._weigh(_held(pending.item))
        self._filled.set()

    def requeue(self, pendings: Iterable[OutboxItem]) -> None:
        """Put items that were taken back to where they were: before all that was added after them."""
        back = list(pendings)
        if not back:
            return
        spills = [one for one in back if isinstance(one.item, SpillItem)]
        items = [one for one in back if not isinstance(one.item, SpillItem)]
        self._spills = deque(sorted(chain(spills, self._spills), key=attrgetter("order")))
        self._items = deque(sorted(chain(items, self._items), key=attrgetter("order")))
        self._weigh(sum(_held(one.item) for one in back))
        if self._items:
            self._filled.set()
        self._spilled.set()

    @property
    def is_full(self) -> bool:
        """Whether `room` waits."""
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until fewer than `bound` items are queued, in less than half of the budget's bytes."""
        await self._room.wait()

    async def take(self, most: int, most_bytes: int) -> list[OutboxItem]:
        """Wait for an item that is no spill; return at most `most` of them and, beyond the first, at most `most_bytes` of payload.

        What was taken before is answered, or put back.
        """
        self._items_sent = ()
        self._spilled.set()
        await self._filled.wait()
        self._items_sent = taken = self._move(self._items, most, most_bytes)
        if not self._items:
            self._filled.clear()
        return taken

    async def take_spills(self, most: int, most_bytes: int, linger: float) -> list[OutboxItem]:
        """Wait for spills, `linger` seconds more for others unless `most` are there; return as many as `take` does.

        All that is older than they are is answered.
        """
        self._spills_sent = ()
        if not self._spills:
            await self._wait_for_spills()
        if len(self._spills) < most:
            await asyncio.sleep(linger)
        while not self._spills or self._spills[0].order > self._oldest():
            await self._wait_for_spills()
        self._spills_sent = taken = self._move(self._spills, most, most_bytes, self._oldest())
        return taken

    async def _wait_for_spills(self) -> None:
        self._spilled.clear()
        await self._spilled.wait()

    def _oldest(self) -> float:
        """Return the order of the oldest item that is not answered; receipts, which come first, have none."""
        return min(next((one.order for one in queue if one.order), inf) for queue in (self._items_sent, self._items))

    def _move(self, queue: deque[OutboxItem], most: int, most_bytes: int, before: float = inf) -> list[OutboxItem]:
        """Take items that were put before order `before`, at most `most` and, beyond the first, at most `most_bytes`."""
        taken: list[OutboxItem] = []
        size = 0
        while queue and len(taken) < most and queue[0].order < before:
            size += _size(queue[0].item)
            if taken and size > most_bytes:
                break
            taken.append(queue.popleft())
        self._weigh(-sum(_held(pending.item) for pending in taken))
        return taken

    def _weigh(self, change: int) -> None:
        self.held += change
        self.budget.change(change)
        if len(self) < self._bound and self.held < self.budget.limit // 2:
            self._room.set()
        else:
            self._room.clear()


def _held(item: Item) -> int:
    """Return how many bytes the text of an item holds in memory: of one that is not ASCII up to four for each character."""
    if isinstance(item, Receipt):
        return _RECEIPT_BYTES
    return getsizeof(item.payload if isinstance(item, EventItem) else item.raw)


def _size(item: Item) -> int:
    if isinstance(item, Receipt):
        return _RECEIPT_BYTES
    return len(item.payload) if isinstance(item, EventItem) else len(item.raw)
