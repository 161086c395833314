"""Record receipts with the api: they travel in the next batch of what triggers fired."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from headrace.core.ledger.receipts import Receipt
from headrace.errors import ApiRefused, Fenced
from headrace.ports.triggerer_api import TriggererApi
from headrace.retry import retry_until_available
from headrace.triggerer.outbox.outbox import Outbox, OutboxItem
from headrace.triggerer.outbox.subscriber_sets import SubscriberSets
from headrace.triggers.stream_log import Books, LogMark
from headrace.wire.custody import receipts as wire
from headrace.wire.custody.events import ReceiptStatus

FEW_OWED = 32
"""So many triggers a receipt names one by one; more of them are named as a subscriber set, which is defined once."""

_MOST_DEFINITIONS = 3


class ApiReceiptRecorder:
    """A `ReceiptRecorder` over the machine API.

    A call of its own for each receipt would be a second commit for each batch of events, and take as long again: see
    docs/design/benchmarks.md.
    """

    def __init__(self, api: TriggererApi, outbox: Outbox) -> None:
        self._api = api
        self._outbox = outbox
        self._subscriber_sets = SubscriberSets(api)

    async def books(self, stream: str) -> Books:
        """Return the event log, and how many receipts of the stream it has."""
        found = await retry_until_available(lambda: self._api.books(stream), "the receipts of a stream")
        adopted = found.adopted
        return Books(found.log, found.receipts, None if adopted is None else LogMark(adopted.log, adopted.stream, adopted.receipts))

    async def marks(self, stream: str, lanes: Sequence[str]) -> Mapping[str, int]:
        """Return how far the custody of these lanes is recorded."""
        answer = await retry_until_available(lambda: self._api.marks(stream, list(lanes)), "custody marks")
        return {mark.lane: mark.last for mark in answer.marks}

    async def record(self, receipt: Receipt) -> bool:
        """Return once the receipt is recorded durably: whether it is new.

        Raises:
            Fenced: Another job holds a trigger that had to answer.
            ApiRefused: The api cannot take the receipt as it is.
        """
        status = await self._stored(await self._wired(receipt))
        for _ in range(_MOST_DEFINITIONS):
            if status != "unknown_subscriber_set":
                break
            # retention has merged it, or the database is another
            self._subscriber_sets.forget(receipt.stream)
            status = await self._stored(await self._wired(receipt))
        if status == "fenced":
            raise Fenced(f"Another triggerer reads {receipt.stream} now: lane {receipt.lane} is not advanced here.", problem="fenced")
        if status in {"invalid", "unknown_subscriber_set"}:
            raise ApiRefused(f"The api does not take the receipt of lane {receipt.lane} of {receipt.stream}.", problem="invalid")
        return status == "stored"

    async def _stored(self, receipt: wire.Receipt) -> ReceiptStatus:
        recorded: asyncio.Future[ReceiptStatus] = asyncio.get_running_loop().create_future()
        self._outbox.put_first(OutboxItem(receipt, stored=recorded))
        return await recorded

    async def _wired(self, receipt: Receipt) -> wire.Receipt:
        subscriber_set = await self._subscriber_sets.defined(receipt.stream, receipt.owed) if len(receipt.owed) > FEW_OWED else None
        return wire.Receipt(
            stream=receipt.stream,
            lane=receipt.lane,
            after=receipt.after,
            last=receipt.last,
            read=receipt.read,
            owed=list(receipt.owed) if subscriber_set is None else [],
            subscriber_set=subscriber_set,
            answers=[wire.Answers.model_validate(answers._asdict()) for answers in receipt.answers],
        )
