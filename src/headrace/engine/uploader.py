"""Send what triggers fired to the api, in batches that form while the batch before them is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog

from headrace.engine.backoff import Backoff
from headrace.engine.outbox import Outbox, Pending
from headrace.errors import ApiRefused, ApiUnavailable, Fenced
from headrace.wire.events import BatchStored, DeadLetterItem, EventBatch, EventItem, ItemStatus

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
        self._log = structlog.get_logger(__name__)

    async def run(self) -> None:
        """Send for ever.

        Raises:
            Fenced: This job is over; nothing more of it may be stored.
        """
        while True:
            await self._send(await self._outbox.take(_MOST_ITEMS, _MOST_BYTES))

    async def _send(self, batch: Sequence[Pending]) -> None:
        # a worklist, so that one poison item among 2,000 costs eleven more calls and no recursion
        work = [list(batch)]
        while work:
            part = work.pop()
            try:
                self._settle(part, await self._stored(part))
            except Fenced:
                raise
            except ApiRefused as refusal:
                if len(part) > 1:
                    middle = len(part) // 2
                    work += [part[middle:], part[:middle]]
                else:
                    work += self._refused(part[0], str(refusal))

    async def _stored(self, part: Sequence[Pending]) -> BatchStored:
        batch = self._batch(part)
        backoff = Backoff()
        while True:
            try:
                answer = await self._api.store(batch)
            except ApiUnavailable as trouble:
                wait = backoff.next(trouble.retry_after)
                self._log.warning("api unavailable, keeping the batch", items=len(part), error=str(trouble), retry_in=round(wait, 2))
                await asyncio.sleep(wait)
            else:
                if backoff.tries:
                    self._log.info("api available again", tries=backoff.tries)
                return answer

    def _batch(self, part: Sequence[Pending]) -> EventBatch:
        events = [pending.item for pending in part if isinstance(pending.item, EventItem)]
        letters = [pending.item for pending in part if isinstance(pending.item, DeadLetterItem)]
        triggers = {one for item in events for one in item.firings} | {one for letter in letters for one in letter.triggers}
        return EventBatch(epochs=self._epochs(triggers), events=events, dead_letters=letters)

    def _settle(self, part: Sequence[Pending], answer: BatchStored) -> None:
        events, letters = iter(answer.events), iter(answer.dead_letters)
        durable: list[int] = []
        for pending in part:
            status: ItemStatus = next(events) if isinstance(pending.item, EventItem) else next(letters)
            if status == "invalid":
                for refused in self._refused(pending, "the api cannot store it as it is"):
                    self._outbox.put(refused[0])
            elif status == "fenced":
                # another triggerer holds the lease: the broker will give it this event again
                self._log.warning("fenced: not stored", id=pending.item.id)
            elif pending.seq is not None:
                durable.append(pending.seq)
        self._settling.confirm_persisted(durable)

    def _refused(self, pending: Pending, reason: str) -> list[list[Pending]]:
        item = pending.item
        if isinstance(item, DeadLetterItem):
            # it cannot even be kept as a dead letter: it stays owed, so the broker keeps it, and this is loud
            self._log.error("dead letter refused by the api", id=item.id, reason=reason)
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
        return [[Pending(letter, pending.seq)]]
