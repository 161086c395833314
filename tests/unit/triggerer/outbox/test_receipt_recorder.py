"""Receipts are sent with the events of the triggers, and each caller waits until its own receipt is durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from headrace import retry
from headrace.core.ledger.receipts import Receipt
from headrace.errors import ApiRefused, ApiUnavailable, Fenced
from headrace.ports.triggerer_api import TriggererApi
from headrace.retry import Backoff
from headrace.triggerer.outbox.outbox import Outbox, OutboxItem
from headrace.triggerer.outbox.receipt_recorder import ApiReceiptRecorder
from headrace.triggerer.outbox.uploader import Uploader
from headrace.triggerer.runner.backlog import ApiBacklog
from headrace.triggerer.runner.leases import Leases
from headrace.wire.custody.backlog import BacklogItem, BacklogPage, SettleBacklog
from headrace.wire.custody.events import BatchStored, EventBatch, EventItem
from headrace.wire.custody.receipts import FindLaneOffsets, LaneOffsets
from support.processes.api_twin import ApiTwin


class Api(ApiTwin):
    """The part of the api that keeps the books; each call is held until `go`, those in `trouble` raise, `status` answers each receipt."""

    def __init__(self, *trouble: Exception, status: str = "stored") -> None:
        self.trouble = list(trouble)
        self.status = status
        self.calls: list[EventBatch] = []
        self.settled: list[SettleBacklog] = []
        self.reads: list[str] = []
        self.go = asyncio.Event()
        self.go.set()

    async def store(self, batch: EventBatch) -> BatchStored:
        self.calls.append(batch)
        await self.go.wait()
        if self.trouble:
            raise self.trouble.pop(0)
        events, receipts = ["stored"] * len(batch.events), [self.status] * len(batch.receipts)
        return BatchStored.model_validate({"events": events, "dead_letters": [], "receipts": receipts})

    async def recorded_offsets(self, request: FindLaneOffsets) -> LaneOffsets:
        self.reads.append(request.stream)
        return LaneOffsets(offsets=[])

    async def backlog(self, trigger_id: int, after: int, limit: int) -> BacklogPage:
        if self.trouble:
            raise self.trouble.pop(0)
        items = [BacklogItem(number=n, stream="s", lane="l", position=n, raw="{}", attempts=0) for n in range(after + 1, 6)]
        return BacklogPage(items=items[:limit], depth=5)

    async def settle(self, settled: SettleBacklog, trigger_id: int) -> None:
        if self.trouble:
            raise self.trouble.pop(0)
        self.settled.append(settled)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "Backoff", lambda: Backoff(first=0.0))


def held() -> Leases:
    leases = Leases()
    leases.update({1: 4, 2: 5})
    return leases


def receipt(lane: str, last: int, *owed: int) -> Receipt:
    return Receipt(stream="s", lane=lane, after=None, last=last, read=last, owed=owed, answers=())


class Nobody:
    """The ledger, where no trigger event waits."""

    def confirm_persisted(self, seqs: Iterable[int]) -> None:
        assert not list(seqs)

    def mark_rejected(self, seq: int) -> None:
        raise AssertionError(seq)


@asynccontextmanager
async def recording(api: Api, leases: Leases | None = None) -> AsyncIterator[tuple[ApiReceiptRecorder, Outbox]]:
    outbox = Outbox()
    uploader = Uploader(api, outbox, Nobody(), (leases or held()).epochs)
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        uploading = tasks.create_task(uploader.run())
        yield ApiReceiptRecorder(cast(TriggererApi, api), outbox), outbox
        uploading.cancel()


async def called(api: Api) -> None:
    while not api.calls:
        await asyncio.sleep(0)


async def test_receipts_during_a_call_travel_in_the_next_batch() -> None:
    api = Api()
    api.go.clear()
    async with recording(api) as (books, outbox), asyncio.TaskGroup() as lanes:
        lanes.create_task(books.record(receipt("a", 1, 1)))
        await called(api)
        outbox.put(OutboxItem(EventItem(id="e", source="s", type="t", payload="{}", firings=[2])))
        for lane in "bcd":
            lanes.create_task(books.record(receipt(lane, 2, 1, 2)))
        await asyncio.sleep(0)
        api.go.set()
    assert [sorted(one.lane for one in call.receipts) for call in api.calls] == [["a"], ["b", "c", "d"]]
    assert [len(call.events) for call in api.calls] == [0, 1]
    assert [call.epochs for call in api.calls] == [{1: 4}, {1: 4, 2: 5}]


async def test_a_receipt_overtakes_queued_items() -> None:
    api = Api()
    api.go.clear()
    async with recording(api) as (books, outbox), asyncio.TaskGroup() as lanes:
        lanes.create_task(books.record(receipt("a", 1, 1)))
        await called(api)
        for number in range(3000):  # more than one call takes
            outbox.put(OutboxItem(EventItem(id=f"e{number}", source="s", type="t", payload="{}", firings=[2])))
        last = lanes.create_task(books.record(receipt("b", 1, 1)))
        await asyncio.sleep(0)
        api.go.set()
        await last
        assert [one.lane for one in api.calls[1].receipts] == ["b"]


async def test_the_offsets_of_a_stream_are_read_after_the_receipts_of_a_cancelled_advance() -> None:
    """Otherwise the next receipt would begin before this one, and change nothing."""
    api = Api()
    api.go.clear()
    async with recording(api) as (books, _), asyncio.TaskGroup() as tasks:
        advance = tasks.create_task(books.record(receipt("a", 1, 1)))
        await called(api)
        advance.cancel()
        await asyncio.wait([advance])
        for read in (books.recorded_offsets("s", ["a"]), books.count_receipts("s")):
            reading = tasks.create_task(read)
            await asyncio.sleep(0.01)
            assert not api.reads
            reading.cancel()
        assert await books.recorded_offsets("other", ["a"]) == {}
        reading = tasks.create_task(books.recorded_offsets("s", ["a"]))
        api.go.set()
        await reading
    assert api.reads == ["other", "s"]


async def test_an_unavailable_api_is_retried() -> None:
    api = Api(ApiUnavailable("503"), ApiUnavailable("503"))
    async with recording(api) as (books, _):
        await books.record(receipt("a", 1, 1))
    assert len(api.calls) == 3


async def test_an_old_owner_does_not_advance() -> None:
    async with recording(Api(status="fenced")) as (books, _):
        with pytest.raises(Fenced, match="lane a is not advanced"):
            await books.record(receipt("a", 1, 1))


async def test_a_refused_receipt_does_not_affect_other_receipts() -> None:
    api = Api(ApiRefused("422"), ApiRefused("422"))
    api.go.clear()
    async with recording(api) as (books, _):
        # two in one call, which is refused, and then one of them again
        first = asyncio.create_task(books.record(receipt("a", 1, 1)))
        second = asyncio.create_task(books.record(receipt("b", 1, 1)))
        await asyncio.sleep(0)
        api.go.set()
        refused = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(one) for one in refused if one is not True] == [ApiRefused]
        await books.record(receipt("c", 1, 1))


async def test_a_cancelled_caller_does_not_affect_other_callers() -> None:
    api = Api()
    api.go.clear()
    async with recording(api) as (books, _):
        gone, stays = asyncio.create_task(books.record(receipt("a", 1, 1))), asyncio.create_task(books.record(receipt("b", 1, 1)))
        await called(api)
        gone.cancel()
        await asyncio.wait({gone})
        api.go.set()
        await stays


async def test_a_released_trigger_is_answered_under_its_last_epoch() -> None:
    api, leases = Api(), held()
    leases.update({}, [1])
    async with recording(api, leases) as (books, _):
        await books.record(receipt("a", 1, 1, 2))
    assert api.calls[0].epochs == {1: 4, 2: 5}


async def test_a_backlog_is_read_and_settled_despite_api_errors() -> None:
    api = Api(ApiUnavailable("503"))
    backlog = ApiBacklog(cast(TriggererApi, api), 1, held().epoch)
    assert [entry.number for entry in await backlog.fetch(2, 2)] == [3, 4]
    api.trouble.append(ApiUnavailable("504"))
    await backlog.settle([(3, "fired"), (4, "filtered")])
    (settled,) = api.settled
    assert (settled.epoch, [(one.number, one.answer) for one in settled.settled]) == (4, [(3, "fired"), (4, "filtered")])


def test_lease_changes_give_the_triggers_to_start_and_stop() -> None:
    leases = held()
    now = {2: 6, 3: 1}
    assert leases.changes(now, [1, 7]) == ([2, 3], [2, 1])
    assert leases.changes(now, [1, 7]) == ([2, 3], [2, 1])
    leases.update(now, [1, 7])
    assert leases.changes(now, [1, 7]) == ([], [])
    assert leases.epochs([1, 2, 3, 9]) == {1: 4, 2: 6, 3: 1, 9: 0}
