"""Send what triggers fired to the api, in batches that form while the batch before them is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Protocol

import structlog

from headrace.engine.insist import insist
from headrace.engine.outbox import Item, Outbox, Pending, triggers_of
from headrace.errors import ApiRefused, Fenced
from headrace.wire.backlog import SpillItem
from headrace.wire.custody import Receipt
from headrace.wire.events import BatchStored, DeadLetterItem, EventBatch, EventItem, ReceiptStatus

_MOST_ITEMS = 2000
_MOST_BYTES = 4 * 1024 * 1024


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
    """One batch in flight at a time; transient trouble keeps it, a permanent refusal is narrowed down to the items that cause it."""

    def __init__(self, api: Storing, outbox: Outbox, settling: Settling, epochs: Callable[[Iterable[int]], dict[int, int]]) -> None:
        self._api = api
        self._outbox = outbox
        self._settling = settling
        self._epochs = epochs
        self._sending: list[Pending] = []
        self._fenced: list[Pending] = []
        self._log = structlog.get_logger(__name__)

    async def run(self) -> None:
        """Send for ever.

        Raises:
            Fenced: This job is over; nothing more of it may be stored.
        """
        while True:
            self._sending = await self._outbox.take(_MOST_ITEMS, _MOST_BYTES)
            await self._send(self._sending)
            self._sending = []

    def unanswered(self, trigger_ids: Iterable[int]) -> set[int]:
        """Return those of the triggers that something names which the api has not answered yet."""
        return set(trigger_ids) & {one for pending in chain(self._sending, self._outbox) for one in triggers_of(pending.item)}

    def again(self) -> None:
        """Send again what was fenced: the leases are others now."""
        fenced, self._fenced = self._fenced, []
        for pending in fenced:
            self._outbox.put(pending)

    async def _send(self, batch: Sequence[Pending]) -> None:
        # a worklist, so that one poison item among 2,000 costs eleven more calls and no recursion
        work = [list(batch)]
        while work:
            part = work.pop()
            try:
                self._settle(part, *await self._stored(part))
            except Fenced:
                raise
            except ApiRefused as refusal:
                if len(part) > 1:
                    middle = len(part) // 2
                    work += [part[middle:], part[:middle]]
                else:
                    work += self._refused(part[0], str(refusal))

    async def _stored(self, part: Sequence[Pending]) -> tuple[BatchStored, dict[int, int]]:
        """Return what became of each item, and the epochs under which it was sent."""
        batch = self._batch(part)
        return await insist(lambda: self._api.store(batch), f"batch of {len(part)}"), batch.epochs

    def _batch(self, part: Sequence[Pending]) -> EventBatch:
        events = [pending.item for pending in part if isinstance(pending.item, EventItem)]
        letters = [pending.item for pending in part if isinstance(pending.item, DeadLetterItem)]
        spills = [pending.item for pending in part if isinstance(pending.item, SpillItem)]
        receipts = [pending.item for pending in part if isinstance(pending.item, Receipt)]
        triggers = {one for pending in part for one in triggers_of(pending.item)}
        return EventBatch(epochs=self._epochs(triggers), events=events, dead_letters=letters, spills=spills, receipts=receipts)

    def _settle(self, part: Sequence[Pending], answer: BatchStored, sent: dict[int, int]) -> None:
        answers = {
            EventItem: iter(answer.events),
            DeadLetterItem: iter(answer.dead_letters),
            SpillItem: iter(answer.spills),
            Receipt: iter(answer.receipts),
        }
        durable: list[int] = []
        for pending in part:
            status: ReceiptStatus = next(answers[type(pending.item)])
            if status == "invalid":
                for refused in self._refused(pending, "the api cannot store it as it is"):
                    self._outbox.put(refused[0])
            elif status == "fenced":
                self._log.warning("fenced: not stored", what=named(pending.item))
                self._keep(pending, sent)
            else:
                pending.settle(status)
                if pending.seq is not None:
                    durable.append(pending.seq)
        self._settling.confirm_persisted(durable)

    def _keep(self, pending: Pending, sent: dict[int, int]) -> None:
        """Keep what was fenced: a trigger that only changed is leased to this job again, and what it answered is owed.

        Where another triggerer has the lease, nothing comes of it, and the broker gives it this event.
        """
        if pending.stored is not None:
            pending.settle("fenced")
        elif self._epochs(sent) != sent:
            self._outbox.put(pending)
        else:
            self._fenced.append(pending)

    def _refused(self, pending: Pending, reason: str) -> list[list[Pending]]:
        item = pending.item
        if not isinstance(item, EventItem):
            # it cannot even be kept as it is: it stays owed, so the broker keeps it, and this is loud
            self._log.error("refused by the api", what=named(item), reason=reason)
            pending.settle("invalid")
            return []
        self._log.error("event refused by the api, kept as a dead letter", id=item.id, reason=reason)
        if pending.seq is not None:
            self._settling.mark_rejected(pending.seq)
        letter = DeadLetterItem(
            id=f"{item.stream}/{item.lane}/{item.position}/{item.id}"[:1000],
            kind="failed",
            reason=reason,
            stream=item.stream or item.source,
            lane=item.lane,
            position=item.position,
            raw=item.payload,
            triggers=item.firings,
        )
        return [[Pending(letter, pending.seq, pending.stored)]]


def named(item: Item) -> str:
    """Return what tells an item from others in a log line."""
    if isinstance(item, Receipt):
        return f"receipt of {item.stream}/{item.lane} up to {item.last}"
    return f"{item.stream}/{item.lane}/{item.position}" if isinstance(item, SpillItem) else item.id
