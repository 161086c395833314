"""Backlog, receipts and marks over HTTP: the real client, a real server, a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, delete

from headrace.client.admin.client import AdminClient
from headrace.client.triggerer import TriggererClient
from headrace.core.ledger import receipts
from headrace.errors import ApiRefused, Fenced
from headrace.store.tables.custody import subscriber_sets
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.outbox.receipt_recorder import MAX_NAMED_TRIGGERS, ApiReceiptRecorder
from headrace.triggerer.outbox.uploader import Uploader
from headrace.triggerer.runner.leases import Leases
from headrace.wire.calls import admin as calls
from headrace.wire.control.jobs import Heartbeat
from headrace.wire.custody.backlog import Settled
from headrace.wire.custody.dead_letters import DeadLetterSelection
from headrace.wire.custody.events import EventBatch
from support.processes.calls import get_backlog, get_lane_offsets, load_triggers, settle_backlog
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import DATABASES, declaration, event, letter, registration
from support.sources.custody import answered, receipt, spill


@pytest.fixture(params=DATABASES)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path, kind=request.param) as running:
        yield running


@pytest.fixture
async def client(api: Api) -> AsyncIterator[TriggererClient]:
    async with TriggererClient(api.url, key=KEY) as made:
        await made.register(registration())
        await made.declare("flights", declaration("first", "second"))
        yield made


async def epochs(client: TriggererClient) -> dict[int, int]:
    return {lease.trigger_id: lease.epoch for lease in (await load_triggers(client, 100)).leases}


async def test_a_raw_event_is_spilled_read_from_the_backlog_and_settled(client: TriggererClient, api: Api) -> None:
    held = await epochs(client)
    batch = EventBatch(epochs=held, events=[event("a", 2)], spills=[spill(1, 1, raw="ü"), spill(2, 1)])
    stored = await client.store(batch)
    assert (stored.events, stored.spills) == (["stored"], ["stored", "stored"])
    assert (await client.store(batch)).spills == ["duplicate", "duplicate"]
    stretch = EventBatch(epochs=held, receipts=[receipt(None, 2, 2, answered(1, spilled=2), answered(2, fired=1))])
    assert (await client.store(stretch)).receipts == ["stored"]
    assert (await client.store(stretch)).receipts == ["duplicate"]
    assert [(mark.lane, mark.last) for mark in (await get_lane_offsets(client, "folder", ["b", "a.jsonl"])).offsets] == [("a.jsonl", 2)]
    assert (await client.heartbeat(Heartbeat())).backlogs == {1: 2}
    page = await get_backlog(client, 1, 0, 1)
    assert ([item.raw for item in page.items], page.depth) == (["ü"], 2)
    rest = await get_backlog(client, 1, page.items[-1].number, 100)
    assert [item.position for item in rest.items] == [2]
    settled = [Settled(number=item.number, answer="filtered") for item in (*page.items, *rest.items)]
    for _ in range(2):
        await settle_backlog(client, 1, held[1], settled)
    assert (await get_backlog(client, 1, 0, 100)).items == []
    with AdminClient(api.url) as admin:
        books = await asyncio.to_thread(admin.read, calls.GET_AUDIT)
        nothing = await asyncio.to_thread(admin.read, calls.GET_AUDIT, {"stream": "another"})
    assert books.clean
    assert [(one.trigger, one.read, one.fired, one.filtered, one.settled) for one in books.streams[0].triggers] == [
        ("first", 2, 0, 2, 2),
        ("second", 2, 1, 1, 0),
    ]
    assert nothing.streams == []


async def test_backlog_and_receipts_of_another_job_are_fenced(client: TriggererClient, api: Api) -> None:
    held = await epochs(client)
    async with TriggererClient(api.url, key=KEY) as other:
        await other.register(registration())
        with pytest.raises(Fenced):
            await get_backlog(other, 1, 0, 10)
        with pytest.raises(Fenced):
            await settle_backlog(other, 1, held[1], [])
        stranger = EventBatch(epochs=held, events=[event("a", 2)], receipts=[receipt(None, 1, 1)])
        fenced = await other.store(stranger)
        assert (fenced.events, fenced.receipts) == (["fenced"], ["fenced"])
        assert (await get_lane_offsets(other, "folder", ["a.jsonl"])).offsets == []


async def test_a_receipt_is_stored_with_its_events_and_spills(client: TriggererClient, api: Api) -> None:
    held = await epochs(client)
    stretch = receipt(None, 1, 1, answered(1, spilled=1), answered(2, fired=1))
    stored = await client.store(EventBatch(epochs=held, events=[event("a", 2)], spills=[spill(1, 1)], receipts=[stretch]))
    assert (stored.events, stored.spills, stored.receipts) == (["stored"], ["stored"], ["stored"])
    with AdminClient(api.url) as admin:
        assert (await asyncio.to_thread(admin.read, calls.GET_AUDIT)).clean


async def test_concurrent_receipts_are_all_recorded(client: TriggererClient, api: Api) -> None:
    held = await epochs(client)
    await asyncio.gather(
        *(client.store(EventBatch(epochs=held, receipts=[receipt(None, 9, 10, lane=f"{lane}", owed=(1,))])) for lane in range(40))
    )
    assert len((await get_lane_offsets(client, "folder", [f"{lane}" for lane in range(50)])).offsets) == 40
    with AdminClient(api.url) as admin:
        books = await asyncio.to_thread(admin.read, calls.GET_AUDIT)
    assert (books.clean, books.streams[0].read, books.streams[0].lanes) == (True, 400, 40)


async def test_a_receipt_of_an_empty_range_is_invalid(client: TriggererClient, api: Api) -> None:
    token = client._registered.token
    body: dict[str, object] = {"epochs": {}, "receipts": [{"stream": "s", "lane": "l", "after": None, "last": 1, "read": 0, "owed": []}]}
    answer = await asyncio.to_thread(api.ask, "POST", "/execution/triggers/events", token=token, json=body)
    assert answer.status_code == 422


async def test_redriving_and_discarding_dead_letters_needs_the_deployment_key(client: TriggererClient, api: Api) -> None:
    held = await epochs(client)
    await client.store(EventBatch(epochs=held, dead_letters=[letter("x/1", raw="once more"), letter("y")]))
    asked = DeadLetterSelection(ids=["x/1"], by="me")
    with AdminClient(api.url) as admin:
        for wrong, code in (("another key", 401), (client._registered.token, 403)):
            with pytest.raises(ApiRefused) as refused:
                admin.request(calls.REDRIVE_DEAD_LETTERS, asked, credential=wrong)
            assert refused.value.status == code
        assert admin.request(calls.REDRIVE_DEAD_LETTERS, asked, credential=KEY).count == 1
        assert admin.request(calls.REDRIVE_DEAD_LETTERS, asked, credential=KEY).count == 0
        assert admin.request(calls.DISCARD_DEAD_LETTERS, DeadLetterSelection(kind="malformed"), credential=KEY).count == 1
        assert admin.read(calls.GET_DEAD_LETTER, id="x/1").state == "redriven"
        status = admin.read(calls.GET_STATUS)
        assert status.dead_letter_counts == {"open": 0, "redriven": 1, "discarded": 1}
        assert (status.dead_letters, status.totals.backlog) == (1, 1)
        assert [(one.trigger, one.depth) for one in status.backlogs] == [("first", 1)]
        assert [one["id"] for one in admin.get(calls.LIST_DEAD_LETTERS, {"state": "discarded"})["dead_letters"]] == ["y"]
        done = admin.read(calls.LIST_DEAD_LETTER_ACTIONS).actions
        assert [(one.action, one.count, one.who) for one in done] == [("discard", 1, "unnamed"), ("redrive", 0, "me"), ("redrive", 1, "me")]
        with pytest.raises(ApiRefused) as nothing:
            admin.request(calls.REDRIVE_DEAD_LETTERS, DeadLetterSelection(), credential=KEY)
        assert (nothing.value.status, nothing.value.problem) == (422, "invalid")
        with pytest.raises(ApiRefused):
            admin.get(calls.GET_DEAD_LETTER, id="none")
    page = await get_backlog(client, 1, 0, 10)
    assert [(item.lane, item.raw) for item in page.items] == [("", "once more")]
    await settle_backlog(client, 1, held[1], [Settled(number=page.items[0].number, answer="fired")])
    assert (await client.heartbeat(Heartbeat())).backlogs == {}
    with AdminClient(api.url) as admin:
        assert [one["id"] for one in admin.get(calls.LIST_DEAD_LETTERS)["dead_letters"]] == ["y"]


class Nobody:
    """The ledger, where no trigger event waits."""

    def confirm_persisted(self, seqs: Iterable[int]) -> None:
        assert not list(seqs)

    def mark_rejected(self, seq: int) -> None:
        raise AssertionError(seq)


async def test_receipts_of_many_triggers_are_recorded_by_their_subscriber_set(client: TriggererClient, api: Api) -> None:
    """The recorder and the uploader of a triggerer; retention merges the subscriber set in between."""
    await client.declare("flights", declaration(*(f"t{number}" for number in range(2 * MAX_NAMED_TRIGGERS))))
    leases, outbox = Leases(), Outbox()
    leases.update(await epochs(client))
    owed = tuple(sorted(await epochs(client)))
    uploading = asyncio.create_task(Uploader(client, outbox, Nobody(), leases.epochs).run())
    recorder = ApiReceiptRecorder(client, outbox)
    await recorder.record(receipts.Receipt("folder", "a", None, 9, 10, owed, (receipts.TriggerAnswers(owed[0], fired=3),)))
    api.store.prune(forget_subscriber_sets)
    await recorder.record(receipts.Receipt("folder", "a", 9, 12, 3, owed, ()))
    uploading.cancel()
    assert await recorder.recorded_offsets("folder", ["a", "b"]) == {"a": 12}
    with AdminClient(api.url) as admin:
        books = await asyncio.to_thread(admin.read, calls.GET_AUDIT)
    assert books.streams[0].read == 13


def forget_subscriber_sets(connection: Connection) -> int:
    return connection.execute(delete(subscriber_sets)).rowcount
