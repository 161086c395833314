"""Record receipts with the API. They travel in the next batch of events."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from headrace.core.ledger.receipts import Receipt
from headrace.errors import ApiRefused, Fenced
from headrace.ports.triggerer_api import TriggererApi
from headrace.retry import retry_until_available
from headrace.triggerer.outbox.outbox import Outbox, OutboxItem
from headrace.triggerer.outbox.subscriber_sets import SubscriberSets
from headrace.triggers.stream_log import LaneMove, LogMark, LogState, StreamSeek
from headrace.wire.calls.execution import BEGIN_SEEK, COUNT_RECEIPTS, FINISH_SEEK, GET_LANE_OFFSETS
from headrace.wire.custody import receipts as wire
from headrace.wire.custody import seeks
from headrace.wire.custody.events import ReceiptStatus

MAX_NAMED_TRIGGERS = 32
"""Triggers that a receipt names one by one. More of them are named as a subscriber set, which is defined once."""

_MAX_DEFINITIONS = 3


class ApiReceiptRecorder:
    """A `ReceiptRecorder` over the execution API.

    A stream may end while its receipts wait for the API. It reads its state again only after the API has answered them: otherwise, its next
    receipts would begin before those, and the API would take them for repetitions.

    A separate call for each receipt would double the commits and the time of each batch of events: see
    docs/design/benchmarks.md.
    """

    def __init__(self, api: TriggererApi, outbox: Outbox) -> None:
        self._api = api
        self._outbox = outbox
        self._subscriber_sets = SubscriberSets(api)
        self._abandoned: dict[str, set[asyncio.Future[ReceiptStatus]]] = defaultdict(set)

    async def count_receipts(self, stream: str) -> LogState:
        """Return the id of the event log, the number of the stream's receipts in it, and its planned seek."""
        await self._wait_for_abandoned(stream)
        request = wire.CountReceipts(stream=stream)
        answer = await retry_until_available(lambda: self._api.request(COUNT_RECEIPTS, request), "the receipts of a stream")
        adopted = None if answer.adopted is None else LogMark(answer.adopted.log, answer.adopted.stream, answer.adopted.receipts)
        return LogState(answer.log, answer.receipts, adopted, None if answer.seek is None else self._seek(stream, answer.seek))

    async def recorded_offsets(self, stream: str, lanes: Sequence[str]) -> Mapping[str, int]:
        """Return the last recorded position of each lane."""
        await self._wait_for_abandoned(stream)
        request = wire.FindLaneOffsets(stream=stream, lanes=list(lanes))
        answer = await retry_until_available(lambda: self._api.request(GET_LANE_OFFSETS, request), "recorded offsets")
        return {mark.lane: mark.last for mark in answer.offsets}

    async def record(self, receipt: Receipt) -> bool:
        """Wait until the receipt is durable; return whether it is new.

        Raises:
            Fenced: Another job holds a trigger that owed an answer.
            ApiRefused: The API does not accept the receipt.
        """
        status = await self._store(await self._to_wire(receipt))
        for _ in range(_MAX_DEFINITIONS):
            if status != "unknown_subscriber_set":
                break
            # Retention has merged the set, or the database is another one.
            self._subscriber_sets.reset(receipt.stream)
            status = await self._store(await self._to_wire(receipt))
        if status == "fenced":
            raise Fenced(f"Another triggerer reads {receipt.stream} now: lane {receipt.lane} is not advanced here.", problem="fenced")
        if status in {"invalid", "unknown_subscriber_set"}:
            raise ApiRefused(f"The api does not take the receipt of lane {receipt.lane} of {receipt.stream}.", problem="invalid")
        return status == "stored"

    def _seek(self, stream: str, planned: seeks.PendingSeek) -> StreamSeek:
        async def begin(moves: Mapping[str, LaneMove]) -> Mapping[str, int]:
            lanes = [seeks.LaneMove(lane=lane, previous=move.previous, position=move.position) for lane, move in moves.items()]
            request = seeks.BeginSeek(stream=stream, seek=planned.id, lanes=lanes)
            begun = await retry_until_available(lambda: self._api.request(BEGIN_SEEK, request), "the positions of a seek")
            return {one.lane: one.position for one in begun.lanes}

        async def finish(lanes: Collection[str]) -> None:
            request = seeks.FinishSeek(stream=stream, seek=planned.id, lanes=list(lanes))
            await retry_until_available(lambda: self._api.request(FINISH_SEEK, request), "the end of a seek")

        return StreamSeek({one.lane: one.position for one in planned.lanes}, begin, finish)

    async def _store(self, receipt: wire.Receipt) -> ReceiptStatus:
        recorded: asyncio.Future[ReceiptStatus] = asyncio.get_running_loop().create_future()
        self._outbox.put_first(OutboxItem(receipt, stored=recorded))
        try:
            return await asyncio.shield(recorded)
        except asyncio.CancelledError:
            abandoned = self._abandoned[receipt.stream]
            abandoned.add(recorded)
            recorded.add_done_callback(abandoned.discard)
            raise

    async def _wait_for_abandoned(self, stream: str) -> None:
        """Wait until the API has answered the receipts of callers that were cancelled."""
        if abandoned := self._abandoned[stream]:
            await asyncio.wait(abandoned)

    async def _to_wire(self, receipt: Receipt) -> wire.Receipt:
        subscriber_set = (
            await self._subscriber_sets.define(receipt.stream, receipt.owed) if len(receipt.owed) > MAX_NAMED_TRIGGERS else None
        )
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
