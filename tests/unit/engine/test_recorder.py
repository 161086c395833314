"""Receipts of several lanes travel together, one lane's in order, and each waits until its own is durable."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from headrace.core.custody import Receipt
from headrace.engine import insist
from headrace.engine.backlog import ApiBacklog
from headrace.engine.backoff import Backoff
from headrace.engine.leases import Leases
from headrace.engine.recorder import ApiRecorder
from headrace.errors import ApiUnavailable, Fenced
from headrace.ports.control_plane import TriggererControl
from headrace.wire.backlog import BacklogItem, BacklogPage, SettleBacklog
from headrace.wire.custody import Receipts
from headrace.wire.jobs import Lease


class Api:
    """The part of the api that keeps the books; each call is held until `go`, and those in `trouble` raise."""

    def __init__(self, *trouble: Exception) -> None:
        self.trouble = list(trouble)
        self.calls: list[Receipts] = []
        self.settled: list[SettleBacklog] = []
        self.go = asyncio.Event()
        self.go.set()

    async def receipts(self, receipts: Receipts) -> None:
        self.calls.append(receipts)
        await self.go.wait()
        if self.trouble:
            raise self.trouble.pop(0)

    async def backlog(self, trigger_id: int, after: int, limit: int) -> BacklogPage:
        if self.trouble:
            raise self.trouble.pop(0)
        items = [BacklogItem(number=n, stream="s", lane="l", position=n, raw="{}", attempts=0) for n in range(after + 1, 6)]
        return BacklogPage(items=items[:limit], depth=5)

    async def settle(self, trigger_id: int, settled: SettleBacklog) -> None:
        if self.trouble:
            raise self.trouble.pop(0)
        self.settled.append(settled)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insist, "Backoff", lambda: Backoff(first=0.0))


def held() -> Leases:
    leases = Leases()
    leases.replace([Lease(trigger_id=1, epoch=4), Lease(trigger_id=2, epoch=5)])
    return leases


def receipt(lane: str, last: int, *owed: int) -> Receipt:
    return Receipt(stream="s", lane=lane, after=None, last=last, read=last, owed=owed, answers=())


def recorder(api: Api, leases: Leases | None = None) -> ApiRecorder:
    return ApiRecorder(cast(TriggererControl, api), (leases or held()).epochs)


async def test_what_comes_while_a_call_is_in_flight_travels_in_the_next() -> None:
    api = Api()
    api.go.clear()
    books = recorder(api)
    async with asyncio.timeout(10), asyncio.TaskGroup() as lanes:
        lanes.create_task(books.record(receipt("a", 1, 1)))
        while not api.calls:
            await asyncio.sleep(0)
        for lane in "bcd":
            lanes.create_task(books.record(receipt(lane, 2, 1, 2)))
        await asyncio.sleep(0)
        api.go.set()
    assert [[one.lane for one in call.receipts] for call in api.calls] == [["a"], ["b", "c", "d"]]
    assert [call.epochs for call in api.calls] == [{1: 4}, {1: 4, 2: 5}]


async def test_an_api_that_is_away_is_asked_again() -> None:
    api = Api(ApiUnavailable("503"), ApiUnavailable("503"))
    await recorder(api).record(receipt("a", 1, 1))
    assert len(api.calls) == 3


async def test_a_refusal_reaches_all_who_wait_and_the_next_is_tried_anew() -> None:
    api = Api(Fenced("another owner"))
    books = recorder(api)
    refused = await asyncio.gather(books.record(receipt("a", 1, 1)), books.record(receipt("b", 1, 1)), return_exceptions=True)
    assert [type(one) for one in refused] == [Fenced, Fenced]
    await books.record(receipt("a", 1, 1))


async def test_one_who_waits_no_more_does_not_hurt_the_others() -> None:
    api = Api()
    api.go.clear()
    books = recorder(api)
    gone, stays = asyncio.create_task(books.record(receipt("a", 1, 1))), asyncio.create_task(books.record(receipt("b", 1, 1)))
    while not api.calls:
        await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait({gone})
    api.go.set()
    await stays


async def test_a_trigger_that_went_is_answered_for_under_its_last_epoch() -> None:
    api, leases = Api(), held()
    leases.replace([Lease(trigger_id=2, epoch=5)])
    await recorder(api, leases).record(receipt("a", 1, 1, 2))
    assert api.calls[0].epochs == {1: 4, 2: 5}


async def test_a_backlog_is_read_and_settled_through_trouble() -> None:
    api = Api(ApiUnavailable("503"))
    backlog = ApiBacklog(cast(TriggererControl, api), 1, held().epoch)
    assert [entry.number for entry in await backlog.fetch(2, 2)] == [3, 4]
    api.trouble.append(ApiUnavailable("504"))
    await backlog.settle([(3, "fired"), (4, "filtered")])
    (settled,) = api.settled
    assert (settled.epoch, [(one.number, one.answer) for one in settled.settled]) == (4, [(3, "fired"), (4, "filtered")])


def test_leases_say_what_is_to_start_and_to_stop() -> None:
    leases = held()
    now = [Lease(trigger_id=2, epoch=6), Lease(trigger_id=3, epoch=1)]
    assert leases.changes(now) == ([2, 3], [1, 2])
    assert leases.changes(now) == ([2, 3], [1, 2])
    leases.replace(now)
    assert leases.changes(now) == ([], [])
    assert leases.epochs([1, 2, 3, 9]) == {1: 4, 2: 6, 3: 1, 9: 0}
