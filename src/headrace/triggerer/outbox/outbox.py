"""Bounded queue of items to store, in order: fired events, dead letters, spills and receipts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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

_RECEIPT_BYTES = 256  # an estimate; receipts must count towards the limit


def triggers_of(item: Item) -> Sequence[int]:
    """Return the triggers that an item names. It is stored only while this job holds the leases of all of them."""
    if isinstance(item, EventItem):
        return item.firings
    return [*item.owed, *(answers.trigger_id for answers in item.answers)] if isinstance(item, Receipt) else item.triggers


@dataclass(slots=True, eq=False)
class OutboxItem:
    """One item to store. The shared stream waits for `seq`, another caller for `stored`; each may be None.

    `order` is its position in the outbox, which it keeps when it is requeued.
    """

    item: Item
    seq: int | None = None
    stored: asyncio.Future[ReceiptStatus] | None = None
    order: int = 0
    fenced_at: float | None = None
    """Time of the first fencing, by the loop's clock."""
    is_replaced: bool = False
    """Whether a dead letter is stored in its place, since the API refused it. `stored` then gets the status of the dead letter."""
    has_raw: bool = True
    """Whether the payload of an event is the raw event, which a redrive may repeat, and not what a trigger made of it."""
    size: int = field(init=False)
    """Bytes that the item's text holds in memory: up to four for each character if it is not ASCII."""

    def __post_init__(self) -> None:
        item = self.item
        if isinstance(item, EventItem):
            self.size = getsizeof(item.payload)
        else:
            self.size = _RECEIPT_BYTES if isinstance(item, Receipt) else getsizeof(item.raw)

    def settle(self, status: ReceiptStatus) -> None:
        """Report the item's status to the waiting caller."""
        if self.stored is not None and not self.stored.done():
            self.stored.set_result(status)


class Outbox:
    """Two queues: one of spills, one of all other items. `put` never waits; `wait_capacity` does.

    Shared streams limit their unresolved raw events, so they only `put`. Triggers that poll alone call `wait_capacity`
    after each event. A stuck trigger spills every raw event of its stream. Events of other triggers must not wait
    behind these, so spills travel in batches of their own. A spill never overtakes an older item: were it durable
    before an older item of its trigger, a crash would deliver that item after the spill.
    """

    def __init__(self, bound: int = 8192, budget: MemoryBudget | None = None) -> None:
        self._bound = bound
        self._last_order = 0
        self.budget = budget or MemoryBudget()
        self.held_bytes = 0
        """Bytes of the queued and the fenced items."""
        self._fenced: list[OutboxItem] = []
        self._items: deque[OutboxItem] = deque()
        self._spills: deque[OutboxItem] = deque()
        self._items_sent: Sequence[OutboxItem] = ()
        self._spills_sent: Sequence[OutboxItem] = ()
        self._item_added = asyncio.Event()
        self._spill_added = asyncio.Event()
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()

    def __len__(self) -> int:
        return len(self._items) + len(self._spills)

    def __iter__(self) -> Iterator[OutboxItem]:
        yield from self._items
        yield from self._spills

    @property
    def sent(self) -> Iterator[OutboxItem]:
        """Items that were taken and have no answer yet."""
        return chain(self._items_sent, self._spills_sent)

    @property
    def fenced(self) -> Sequence[OutboxItem]:
        """Items that were fenced under old leases and wait for new ones."""
        return self._fenced

    def fence(self, pending: OutboxItem) -> None:
        """Hold a taken item until `take_fenced`."""
        self._fenced.append(pending)
        self._change_bytes(pending.size)

    def take_fenced(self) -> list[OutboxItem]:
        """Remove and return the fenced items."""
        taken, self._fenced = self._fenced, []
        self._change_bytes(-sum(pending.size for pending in taken))
        return taken

    def put(self, pending: OutboxItem) -> None:
        """Add one item."""
        self._last_order += 1
        pending.order = self._last_order
        if isinstance(pending.item, SpillItem):
            self._spills.append(pending)
            self._spill_added.set()
        else:
            self._items.append(pending)
            self._item_added.set()
        self._change_bytes(pending.size)

    def put_first(self, pending: OutboxItem) -> None:
        """Add an item before all queued ones. An upstream waits for it, and the events it accounts for are stored already."""
        self._items.appendleft(pending)
        self._change_bytes(pending.size)
        self._item_added.set()

    def requeue(self, pendings: Iterable[OutboxItem]) -> None:
        """Return taken items to their positions, before all items that were added after them."""
        returned_items = list(pendings)
        if not returned_items:
            return
        spills = [one for one in returned_items if isinstance(one.item, SpillItem)]
        items = [one for one in returned_items if not isinstance(one.item, SpillItem)]
        self._spills = deque(sorted(chain(spills, self._spills), key=attrgetter("order")))
        self._items = deque(sorted(chain(items, self._items), key=attrgetter("order")))
        self._change_bytes(sum(one.size for one in returned_items))
        if self._items:
            self._item_added.set()
        self._spill_added.set()

    @property
    def is_full(self) -> bool:
        """Whether `wait_capacity` would wait."""
        return not self._has_capacity.is_set()

    async def wait_capacity(self) -> None:
        """Wait until fewer than `bound` items are queued, in less than half of the memory budget."""
        await self._has_capacity.wait()

    async def take(self, max_items: int, max_bytes: int) -> list[OutboxItem]:
        """Wait for an item other than a spill. Return up to `max_items` and, beyond the first, up to `max_bytes` of text.

        All items of the previous call must have been answered or requeued.
        """
        self._items_sent = ()
        self._spill_added.set()
        await self._item_added.wait()
        self._items_sent = taken = self._move(self._items, max_items, max_bytes)
        if not self._items:
            self._item_added.clear()
        return taken

    async def take_spills(self, max_items: int, max_bytes: int, linger: float) -> list[OutboxItem]:
        """Wait for spills; return as many as `take` does. If there are fewer than `max_items`, wait `linger` more seconds for others.

        All older items have been answered.
        """
        self._spills_sent = ()
        if not self._spills:
            await self._wait_for_spills()
        if len(self._spills) < max_items:
            await asyncio.sleep(linger)
        while not self._spills or self._spills[0].order > self._oldest():
            await self._wait_for_spills()
        self._spills_sent = taken = self._move(self._spills, max_items, max_bytes, self._oldest())
        return taken

    async def _wait_for_spills(self) -> None:
        self._spill_added.clear()
        await self._spill_added.wait()

    def _oldest(self) -> float:
        """Return the order of the oldest unanswered item. Receipts, which come first, have no order."""
        return min(next((one.order for one in queue if one.order), inf) for queue in (self._items_sent, self._items))

    def _move(self, queue: deque[OutboxItem], max_items: int, max_bytes: int, before: float = inf) -> list[OutboxItem]:
        """Remove items from a queue: orders below `before`, up to `max_items` and, beyond the first, up to `max_bytes`."""
        taken: list[OutboxItem] = []
        size = 0
        while queue and len(taken) < max_items and queue[0].order < before:
            size += queue[0].size
            if taken and size > max_bytes:
                break
            taken.append(queue.popleft())
        self._change_bytes(-sum(pending.size for pending in taken))
        return taken

    def _change_bytes(self, change: int) -> None:
        self.held_bytes += change
        self.budget.change(change)
        if len(self) < self._bound and self.held_bytes < self.budget.limit // 2:
            self._has_capacity.set()
        else:
            self._has_capacity.clear()
