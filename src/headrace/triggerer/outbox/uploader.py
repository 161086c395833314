"""Send what triggers fired to the api, in batches that form while the batch before them is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, Protocol

import structlog

from headrace.errors import ApiRefused, ApiUnavailable, Fenced
from headrace.retry import Backoff, retry_until_available
from headrace.triggerer.outbox.dead_letters import instead_of, smallest
from headrace.triggerer.outbox.outbox import Item, Outbox, OutboxItem, triggers_of
from headrace.triggerer.side_by_side import until_one_ends
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import BatchStored, DeadLetterItem, EventBatch, EventItem, ReceiptStatus
from headrace.wire.custody.receipts import Receipt

_MOST_FAILURES = 2  # answers 500 in a row, after which a batch is sent in parts
_MOST_FAILURES_ALONE = 5  # and after which one item is taken for the cause, where the api takes something else
_MOST_ITEMS = 2000
_MOST_BYTES = 4 * 1024 * 1024

MAX_SPILLS: Final = 128
"""Spills in one batch: an event that comes meanwhile waits for the transaction that stores them."""

MAX_SPILL_BYTES: Final = 256 * 1024
"""Raw text in one batch of spills, unless one spill alone has more."""

SPILL_LINGER_SECONDS: Final = 0.05
"""A spill waits so long for others to travel with."""
MAX_FENCED_SECONDS: Final = 30.0
"""For so long a trigger that is to stop waits for an item that was fenced; a lease that is to come comes with a heartbeat."""


class Storing(Protocol):
    """Stores a batch durably before it returns."""

    async def store(self, batch: EventBatch) -> BatchStored:
        """Store `batch` in one commit."""
        ...


class Settling(Protocol):
    """Is told what became of persist seqs."""

    def confirm_persisted(self, seqs: Iterable[int]) -> None:
        """The items behind `seqs` are durable."""
        ...

    def mark_rejected(self, seq: int) -> None:
        """The item behind `seq` will be stored as a dead letter."""
        ...


class Uploader:
    """One batch of spills and one of all else in flight at a time.

    Transient trouble keeps a batch, a permanent refusal is narrowed down to the items that cause it.
    """

    def __init__(self, api: Storing, outbox: Outbox, settling: Settling, epochs: Callable[[Iterable[int]], dict[int, int]]) -> None:
        self._api = api
        self._outbox = outbox
        self._settling = settling
        self._epochs = epochs
        self._fenced_triggers: set[int] = set()
        self._patience = Backoff()
        self._log = structlog.get_logger(__name__)

    async def run(self) -> None:
        """Send without end.

        Raises:
            Fenced: This job is over; nothing more of it may be stored.
        """
        await until_one_ends({"uploader of items": self._send_items(), "uploader of spills": self._send_spills()})

    def unanswered(self, trigger_ids: Iterable[int]) -> set[int]:
        """Return those of the triggers that something names which the api has not answered yet.

        What was fenced counts for a while: it may name a trigger whose new lease is yet to come, beside one whose last epoch still counts.
        """
        since = asyncio.get_running_loop().time() - MAX_FENCED_SECONDS
        fenced = (one for one in self._outbox.fenced if one.fenced_at is None or one.fenced_at > since)
        owed = chain(self._outbox.sent, self._outbox, fenced)
        return set(trigger_ids) & {one for pending in owed for one in triggers_of(pending.item)}

    def again(self) -> None:
        """Send again what was fenced, before all that was fired after it: the leases are others now."""
        self._fenced_triggers.clear()
        self._outbox.requeue(self._without_stale(self._outbox.take_fenced()))

    def drop_stale(self) -> None:
        """Drop what was fenced and can be stored under no lease of this job any more: it stays owed, and the upstream gives it again."""
        if self._outbox.fenced:
            self._fenced_triggers.clear()
            for pending in self._without_stale(self._outbox.take_fenced()):
                self._wait_for_leases(pending)

    def _without_stale(self, fenced: Iterable[OutboxItem]) -> list[OutboxItem]:
        return [pending for pending in fenced if all(self._epochs(triggers_of(pending.item)).values())]

    async def _send_items(self) -> None:
        while True:
            await self._send(await self._outbox.take(_MOST_ITEMS, _MOST_BYTES))

    async def _send_spills(self) -> None:
        while True:
            taken = await self._outbox.take_spills(MAX_SPILLS, MAX_SPILL_BYTES, SPILL_LINGER_SECONDS)
            if spills := self._without_late_spills(taken):
                await self._send(spills)

    def _without_late_spills(self, taken: list[OutboxItem]) -> list[OutboxItem]:
        """Return what may be sent: spills that come after a fenced item of one of their triggers wait with it, in their order."""
        if not self._fenced_triggers:
            return taken
        sent = []
        for pending in taken:
            if self._fenced_triggers.isdisjoint(triggers_of(pending.item)):
                sent.append(pending)
            else:
                self._wait_for_leases(pending)
        return sent

    def _wait_for_leases(self, pending: OutboxItem) -> None:
        if pending.fenced_at is None:
            pending.fenced_at = asyncio.get_running_loop().time()
        self._outbox.fence(pending)
        self._fenced_triggers.update(triggers_of(pending.item))

    async def _send(self, batch: Sequence[OutboxItem]) -> None:
        # a worklist, so that one poison item among 2,000 costs eleven more calls and no recursion
        work = [list(batch)]
        while work:
            part = work.pop()
            try:
                answer, sent = await self._stored(part)
            except Fenced:
                raise
            except ApiRefused as refusal:
                work += _halves(part) or self._refused(part[0], str(refusal))
            except ApiUnavailable as failure:  # it is not away: it fails on these
                work += _halves(part) or await self._failed(part[0], str(failure))
            else:
                refused, fenced = self._settle(part, answer, sent)
                work += refused
                if fenced:
                    # What else there is of the same triggers must not be stored before that.
                    self._outbox.requeue(pending for rest in work for pending in rest)
                    return

    async def _stored(self, part: Sequence[OutboxItem]) -> tuple[BatchStored, dict[int, int]]:
        """Return what became of each item, and the epochs under which it was sent."""
        batch = self._batch(part)
        most = _MOST_FAILURES if len(part) > 1 else _MOST_FAILURES_ALONE
        return await retry_until_available(lambda: self._api.store(batch), f"batch of {len(part)}", most_failures=most), batch.epochs

    def _batch(self, part: Sequence[OutboxItem]) -> EventBatch:
        events = [pending.item for pending in part if isinstance(pending.item, EventItem)]
        letters = [pending.item for pending in part if isinstance(pending.item, DeadLetterItem)]
        spills = [pending.item for pending in part if isinstance(pending.item, SpillItem)]
        receipts = [pending.item for pending in part if isinstance(pending.item, Receipt)]
        triggers = {one for pending in part for one in triggers_of(pending.item)}
        return EventBatch(epochs=self._epochs(triggers), events=events, dead_letters=letters, spills=spills, receipts=receipts)

    def _settle(self, part: Sequence[OutboxItem], answer: BatchStored, sent: dict[int, int]) -> tuple[list[list[OutboxItem]], bool]:
        """Tell who waits what became of each item; return the items to send instead of some, and whether one was fenced."""
        answers = {
            EventItem: iter(answer.events),
            DeadLetterItem: iter(answer.dead_letters),
            SpillItem: iter(answer.spills),
            Receipt: iter(answer.receipts),
        }
        durable: list[int] = []
        fenced: list[OutboxItem] = []
        instead: list[list[OutboxItem]] = []
        for pending in part:
            status: ReceiptStatus = next(answers[type(pending.item)])
            if status == "invalid":
                instead += self._refused(pending, "The api cannot store it as it is.")
            elif status == "fenced":
                self._log.warning("fenced: not stored", what=named(pending.item))
                fenced.append(pending)
            else:
                pending.settle(status)
                if pending.seq is not None:
                    durable.append(pending.seq)
        self._settling.confirm_persisted(durable)
        self._keep(fenced, sent)
        return instead, bool(fenced)

    def _keep(self, fenced: Sequence[OutboxItem], sent: dict[int, int]) -> None:
        """Keep what was fenced: a trigger that only changed is leased to this job again, and what it answered is owed.

        Where another triggerer has the lease, nothing comes of it, and the broker gives it this event.
        """
        for pending in fenced:
            pending.settle("fenced")
        owed = [pending for pending in fenced if pending.stored is None]
        if self._epochs(sent) != sent:
            self._outbox.requeue(owed)
        else:
            for pending in owed:
                self._wait_for_leases(pending)

    def _refused(self, pending: OutboxItem, reason: str) -> list[list[OutboxItem]]:
        """Return the items to send instead of an item that the API refuses."""
        item = pending.item
        letter = instead_of(item, reason)
        if letter is None:
            # it cannot even be kept as it is: it stays owed, so the broker keeps it, and this is loud
            self._log.error("refused by the api", what=named(item), reason=reason)
            pending.settle("invalid")
            return []
        self._log.error("refused by the api, kept as a dead letter", what=named(item), letter=letter.id, reason=reason)
        if pending.seq is not None and not isinstance(item, DeadLetterItem):
            self._settling.mark_rejected(pending.seq)
        return [[OutboxItem(letter, pending.seq, pending.stored, pending.order)]]

    async def _failed(self, pending: OutboxItem, reason: str) -> list[list[OutboxItem]]:
        """Return the items to send instead of an item that the API fails on: it is the cause where the api takes something else."""
        letter = smallest(pending.item)
        probe = [] if letter is None else [OutboxItem(letter)]
        try:
            await retry_until_available(lambda: self._api.store(self._batch(probe)), "batch of 1", most_failures=1)
        except ApiUnavailable as failure:
            wait = self._patience.next()
            self._log.error("the api fails on everything, trying again", error=str(failure), retry_in=round(wait, 2))
            await asyncio.sleep(wait)
            return [[pending]]
        self._patience.reset()
        if letter is None:
            return self._refused(pending, reason)
        if pending.seq is not None and not isinstance(pending.item, DeadLetterItem):
            self._settling.mark_rejected(pending.seq)
        self._log.error("the api fails on it, kept as a dead letter", what=named(pending.item), letter=letter.id, reason=reason)
        # The same letter once more, which is a duplicate now, or fenced: it is settled as every other.
        return [[OutboxItem(letter, pending.seq, pending.stored, pending.order)]]


def _halves(part: list[OutboxItem]) -> list[list[OutboxItem]]:
    """Return the halves of a batch, the second first; none of a single item."""
    middle = len(part) // 2
    return [part[middle:], part[:middle]] if len(part) > 1 else []


def named(item: Item) -> str:
    """Return what tells an item from others in a log line."""
    if isinstance(item, Receipt):
        return f"receipt of {item.stream}/{item.lane} up to {item.last}"
    return f"{item.stream}/{item.lane}/{item.position}" if isinstance(item, SpillItem) else item.id
