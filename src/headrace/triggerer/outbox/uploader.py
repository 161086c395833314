"""Send items of the outbox to the API. While one batch is in flight, the next one collects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, Protocol

import structlog

from headrace.errors import ApiRefused, ApiUnavailable, Fenced
from headrace.retry import Backoff, retry_until_available
from headrace.triggerer.outbox.dead_letters import replacement_for, shortest_replacement
from headrace.triggerer.outbox.outbox import Item, Outbox, OutboxItem, triggers_of
from headrace.triggerer.task_groups import run_until_first_ends
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import BatchStored, DeadLetterItem, EventBatch, EventItem, ReceiptStatus
from headrace.wire.custody.receipts import Receipt

_MAX_FAILURES = 2  # failures (status 5xx) in a row after which a batch is split
_MAX_FAILURES_ALONE = 5  # failures of a single item after which the item is replaced, if the API accepts another one
_MAX_ITEMS = 2000
_MAX_BYTES = 4 * 1024 * 1024

MAX_SPILLS: Final = 128
"""Spills in one batch: events wait for the transaction that stores the spills."""

MAX_SPILL_BYTES: Final = 256 * 1024
"""Raw text in one batch of spills, unless a single spill is larger."""

SPILL_LINGER_SECONDS: Final = 0.05
"""How long a spill waits for others to share its batch."""
MAX_FENCED_SECONDS: Final = 30.0
"""How long a trigger that must stop waits for a fenced item. A new lease arrives with a heartbeat, which is sooner."""


class BatchStore(Protocol):
    """Stores a batch durably."""

    async def store(self, batch: EventBatch) -> BatchStored:
        """Store `batch` in one commit."""
        ...


class PersistenceListener(Protocol):
    """Receives the results of persist seqs."""

    def confirm_persisted(self, seqs: Iterable[int]) -> None:
        """Report that the items of `seqs` are durable."""
        ...

    def mark_rejected(self, seq: int) -> None:
        """Report that the item of `seq` will be stored as a dead letter."""
        ...


class Uploader:
    """Sends one batch of spills and one batch of other items at a time.

    A transient error retries the batch. A permanent refusal bisects it down to the items that cause the refusal. `dead_letter_stored` is
    called with the stream of each stored dead letter.
    """

    def __init__(
        self,
        api: BatchStore,
        outbox: Outbox,
        listener: PersistenceListener,
        epochs: Callable[[Iterable[int]], dict[int, int]],
        dead_letter_stored: Callable[[str], None] | None = None,
    ) -> None:
        self._api = api
        self._outbox = outbox
        self._listener = listener
        self._epochs = epochs
        self._dead_letter_stored = dead_letter_stored
        self._fenced_triggers: set[int] = set()
        self._backoff = Backoff()
        self._log = structlog.get_logger(__name__)

    async def run(self) -> None:
        """Send until cancelled.

        Raises:
            Fenced: This job is over; the API stores nothing more of it.
        """
        await run_until_first_ends({"uploader of items": self._send_items(), "uploader of spills": self._send_spills()})

    def pending_triggers(self, trigger_ids: Iterable[int]) -> set[int]:
        """Return the given triggers that still have unacknowledged items.

        Fenced items count for `MAX_FENCED_SECONDS`: one may name a trigger whose new lease has not arrived, and a
        second trigger whose last epoch is still valid.
        """
        since = asyncio.get_running_loop().time() - MAX_FENCED_SECONDS
        fenced = (one for one in self._outbox.fenced if one.fenced_at is None or one.fenced_at > since)
        owed = chain(self._outbox.sent, self._outbox, fenced)
        return set(trigger_ids) & {one for pending in owed for one in triggers_of(pending.item)}

    def resend_fenced(self) -> None:
        """Requeue the fenced items under the new leases, before all items that were fired later."""
        self._fenced_triggers.clear()
        self._outbox.requeue(self._without_stale(self._outbox.take_fenced()))

    def drop_stale(self) -> None:
        """Drop fenced items that no lease of this job covers any more. They stay unadvanced, and the upstream delivers them again."""
        if self._outbox.fenced:
            self._fenced_triggers.clear()
            for pending in self._without_stale(self._outbox.take_fenced()):
                self._wait_for_leases(pending)

    def _without_stale(self, fenced: Iterable[OutboxItem]) -> list[OutboxItem]:
        return [pending for pending in fenced if all(self._epochs(triggers_of(pending.item)).values())]

    async def _send_items(self) -> None:
        while True:
            await self._send(await self._outbox.take(_MAX_ITEMS, _MAX_BYTES))

    async def _send_spills(self) -> None:
        while True:
            taken = await self._outbox.take_spills(MAX_SPILLS, MAX_SPILL_BYTES, SPILL_LINGER_SECONDS)
            if spills := self._without_late_spills(taken):
                await self._send(spills)

    def _without_late_spills(self, taken: list[OutboxItem]) -> list[OutboxItem]:
        """Return the spills that may be sent. Spills after a fenced item of one of their triggers wait with it, in order."""
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
        # A worklist: one unstorable item among 2,000 costs eleven more calls and no recursion.
        work = [list(batch)]
        while work:
            part = work.pop()
            try:
                answer, sent = await self._store(part)
            except Fenced:
                raise
            except ApiRefused as error:
                work += _halves(part) or self._replace_invalid(part[0], str(error))
            except ApiUnavailable as failure:  # the API is available and fails on these items
                work += _halves(part) or await self._replace_failing(part[0], str(failure))
            else:
                replacements, fenced = self._settle(part, answer, sent)
                work += replacements
                if fenced:
                    # Other items of the same triggers must not be stored before the fenced ones.
                    self._outbox.requeue(pending for rest in work for pending in rest)
                    return

    async def _store(self, part: Sequence[OutboxItem]) -> tuple[BatchStored, dict[int, int]]:
        """Send a batch; return the API's answer and the epochs under which the batch was sent."""
        batch = self._batch(part)
        max_failures = _MAX_FAILURES if len(part) > 1 else _MAX_FAILURES_ALONE
        return await retry_until_available(lambda: self._api.store(batch), f"batch of {len(part)}", max_failures=max_failures), batch.epochs

    def _batch(self, part: Sequence[OutboxItem]) -> EventBatch:
        items: dict[type[Item], list[Any]] = {EventItem: [], DeadLetterItem: [], SpillItem: [], Receipt: []}
        triggers: set[int] = set()
        for pending in part:
            items[type(pending.item)].append(pending.item)
            triggers.update(triggers_of(pending.item))
        return EventBatch(
            epochs=self._epochs(triggers),
            events=items[EventItem],
            dead_letters=items[DeadLetterItem],
            spills=items[SpillItem],
            receipts=items[Receipt],
        )

    def _settle(self, part: Sequence[OutboxItem], answer: BatchStored, sent: dict[int, int]) -> tuple[list[list[OutboxItem]], bool]:
        """Report the status of each item. Return the items to send as replacements, and whether an item was fenced."""
        answers = {
            EventItem: iter(answer.events),
            DeadLetterItem: iter(answer.dead_letters),
            SpillItem: iter(answer.spills),
            Receipt: iter(answer.receipts),
        }
        durable: list[int] = []
        fenced: list[OutboxItem] = []
        replacements: list[list[OutboxItem]] = []
        for pending in part:
            status: ReceiptStatus = next(answers[type(pending.item)])
            if status == "invalid":
                replacements += self._replace_invalid(pending, "The api cannot store it as it is.")
            elif status == "fenced":
                self._log.warning("item fenced", what=describe_item(pending.item))
                fenced.append(pending)
            else:
                pending.settle(status)
                if isinstance(pending.item, DeadLetterItem) and self._dead_letter_stored is not None:
                    self._dead_letter_stored(pending.item.stream)
                if pending.seq is not None:
                    durable.append(pending.seq)
        self._listener.confirm_persisted(durable)
        self._hold_fenced(fenced, sent)
        return replacements, bool(fenced)

    def _hold_fenced(self, fenced: Sequence[OutboxItem], sent: dict[int, int]) -> None:
        """Hold fenced items. A trigger that only changed is leased to this job again, and its answers are still owed.

        If another triggerer has the lease, the items are dropped later, and the broker delivers the raw events to it.
        """
        for pending in fenced:
            pending.settle("fenced")
        owed = [pending for pending in fenced if pending.stored is None]
        if self._epochs(sent) != sent:
            self._outbox.requeue(owed)
        else:
            for pending in owed:
                self._wait_for_leases(pending)

    def _replace_invalid(self, pending: OutboxItem, reason: str) -> list[list[OutboxItem]]:
        """Return the items to send in place of an item that the API refuses."""
        item = pending.item
        replacement = replacement_for(pending, reason)
        if replacement is None:
            # It has no storable form. It stays unadvanced, so the broker keeps it, and this is logged as an error.
            self._log.error("item refused", what=describe_item(item), reason=reason)
            pending.settle("invalid")
            return []
        self._log.error("item refused, stored as a dead letter", what=describe_item(item), letter=replacement.id, reason=reason)
        return self._replaced(pending, replacement)

    async def _replace_failing(self, pending: OutboxItem, reason: str) -> list[list[OutboxItem]]:
        """Return the items to send in place of an item on which the API fails. The item is the cause if the API accepts a short one."""
        replacement = shortest_replacement(pending)
        probe = [] if replacement is None else [OutboxItem(replacement)]
        try:
            await retry_until_available(lambda: self._api.store(self._batch(probe)), "batch of 1", max_failures=1)
        except ApiUnavailable as failure:
            wait = self._backoff.next()
            self._log.error("API failing on all items, retrying", error=str(failure), retry_in=round(wait, 2))
            await asyncio.sleep(wait)
            return [[pending]]
        self._backoff.reset()
        if replacement is None:
            return self._replace_invalid(pending, reason)
        self._log.error(
            "item failed at the API, stored as a dead letter", what=describe_item(pending.item), letter=replacement.id, reason=reason
        )
        # Send the dead letter again. Now it is a duplicate, or fenced, and settled like all others.
        return self._replaced(pending, replacement)

    def _replaced(self, pending: OutboxItem, replacement: DeadLetterItem) -> list[list[OutboxItem]]:
        pending.is_replaced = True
        if pending.seq is not None and not isinstance(pending.item, DeadLetterItem):
            self._listener.mark_rejected(pending.seq)
        return [[OutboxItem(replacement, pending.seq, pending.stored, pending.order)]]


def _halves(part: list[OutboxItem]) -> list[list[OutboxItem]]:
    """Return the two halves of a batch, the second first, or [] for a single item."""
    middle = len(part) // 2
    return [part[middle:], part[:middle]] if len(part) > 1 else []


def describe_item(item: Item) -> str:
    """Return the identification of an item for log lines."""
    if isinstance(item, Receipt):
        return f"receipt of {item.stream}/{item.lane} up to {item.last}"
    return f"{item.stream}/{item.lane}/{item.position}" if isinstance(item, SpillItem) else item.id
