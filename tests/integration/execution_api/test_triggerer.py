"""The calls of a triggerer from registration to completion, with its real client, a real server and a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace.client.declaring import PAGE_BYTES
from headrace.client.triggerer import TriggererClient
from headrace.errors import ApiRefused, ApiUnavailable, Fenced, StorageBusy
from headrace.ports.triggerer_api import TriggererApi
from headrace.wire.base import MAX_BODY_BYTES
from headrace.wire.control.jobs import CompleteJob, Heartbeat, RegisterJob
from headrace.wire.control.triggers import MAX_STAGED, TriggerFailure, Workloads
from headrace.wire.custody.events import EventBatch
from support.processes.calls import clean_up_triggers, load_triggers, report_failure
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import DATABASES, declaration, event, letter, registration


@pytest.fixture(params=DATABASES)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path, kind=request.param) as running:
        yield running


@pytest.fixture
async def client(api: Api) -> AsyncIterator[TriggererClient]:
    async with TriggererClient(api.url, key=KEY) as made:
        yield made


async def epochs(client: TriggererApi, *names: str, job: RegisterJob | None = None) -> dict[int, int]:
    await client.register(job or registration())
    if names:
        await client.declare("flights", declaration(*names, depth={"of": [1, None]}))
    return {lease.trigger_id: lease.epoch for lease in (await load_triggers(client, 100)).leases}


async def test_a_triggerer_registers_stores_events_and_completes(client: TriggererClient, api: Api) -> None:
    held = await epochs(client, "first", "second")
    assert held == {1: 1, 2: 1}
    workloads = Workloads.model_validate_json((await client.workloads([2, 1])).content).workloads
    assert [(w.name, w.epoch, w.stream, w.kwargs) for w in workloads] == [
        ("first", 1, "folder", {"depth": {"of": [1, None]}}),
        ("second", 1, "folder", {"depth": {"of": [1, None]}}),
    ]
    answer = await client.store(EventBatch(epochs=held, events=[event("a", 1, 2), event("a")], dead_letters=[letter("x", 2)]))
    assert (answer.events, answer.dead_letters) == (["stored", "duplicate"], ["stored"])
    assert len((await client.heartbeat(Heartbeat())).leases) == 2
    await report_failure(client, 1, TriggerFailure(epoch=1, type="ValueError", message="no"))
    await clean_up_triggers(client, {1: 1})
    assert [lease.trigger_id for lease in (await client.heartbeat(Heartbeat())).leases] == [2]
    await client.complete(CompleteJob(state="succeeded"))
    await client.complete(CompleteJob(state="failed"))
    with pytest.raises(Fenced):
        await client.heartbeat(Heartbeat())
    assert api.store.log.head().head == 1


async def test_a_repeated_registration_returns_the_same_job(client: TriggererClient) -> None:
    job = registration()
    assert await client.register(job) == await client.register(job)


async def test_the_previous_owner_of_a_lease_is_fenced(client: TriggererClient, api: Api) -> None:
    held = await epochs(client, "first")
    api.clock.turn(31)
    async with TriggererClient(api.url, key=KEY) as other:
        assert await epochs(other) == {}, "where nobody was heard, all get a moment"
        api.clock.turn(5)
        taken = await epochs(other)
        assert taken == {1: 2}
        with pytest.raises(Fenced) as fenced:
            await client.store(EventBatch(epochs=held, events=[event("a")]))
        assert (fenced.value.status, fenced.value.problem) == (409, "fenced")
        assert (await other.store(EventBatch(epochs=held, events=[event("a")]))).events == ["fenced"]
        assert (await other.store(EventBatch(epochs=taken, events=[event("a")]))).events == ["stored"]
    assert api.store.log.head().head == 1


async def test_concurrent_batches_are_all_stored_once(client: TriggererClient, api: Api) -> None:
    held = await epochs(client, "first")
    batches = [EventBatch(epochs=held, events=[event(f"{n}-{i}") for i in range(50)] + [event("shared")]) for n in range(20)]
    answers = await asyncio.gather(*(client.store(batch) for batch in batches))
    assert sum(answer.events.count("stored") for answer in answers) == 20 * 50 + 1
    assert api.store.log.page(after=0).table.column("seq").to_pylist() == list(range(1, 20 * 50 + 2))


async def test_a_wrong_key_is_refused(api: Api) -> None:
    async with TriggererClient(api.url, key="another key") as stranger:
        with pytest.raises(ApiRefused) as refused:
            await stranger.register(registration())
    assert refused.value.status == 401
    assert refused.value.problem == "unauthorized"
    assert "HEADRACE_KEY" in (refused.value.hint or "")


async def test_the_client_refuses_calls_before_its_registration(client: TriggererClient) -> None:
    with pytest.raises(ApiRefused, match="not registered"):
        await client.heartbeat(Heartbeat())


async def test_an_unreachable_api_server_is_unavailable() -> None:
    async with TriggererClient("http://127.0.0.1:1", key=KEY) as lonely:
        with pytest.raises(ApiUnavailable, match="cannot be reached") as unavailable:
            await lonely.register(registration())
    assert "headrace api" in (unavailable.value.hint or "")


async def test_a_stopping_api_server_is_unavailable(client: TriggererClient, api: Api) -> None:
    held = await epochs(client, "first")
    api.store.close()
    with pytest.raises(ApiUnavailable) as unavailable:
        await client.store(EventBatch(epochs=held, events=[event("a")]))
    assert (unavailable.value.status, unavailable.value.retry_after) == (503, 1.0)
    with pytest.raises(StorageBusy):
        api.store.jobs.register(registration())


@pytest.mark.parametrize("api", ["sqlite"], indirect=True)
async def test_a_full_disk_is_reported_with_a_hint(client: TriggererClient, api: Api) -> None:
    held = await epochs(client, "first")
    api.store._database.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count = 50").scalar_one())
    big = [event(f"{n}", payload='"' + "x" * 10_000 + '"') for n in range(100)]
    with pytest.raises(ApiUnavailable, match="disk is full") as full:
        await client.store(EventBatch(epochs=held, events=big))
    assert (full.value.status, full.value.problem) == (507, "storage-full")
    assert "Make room" in (full.value.hint or "")
    assert (await client.store(EventBatch(epochs=held, events=[event("small")]))).events == ["stored"]


async def test_a_project_of_many_triggers_is_declared_in_pages(client: TriggererClient) -> None:
    await client.register(registration())
    many = [f"t{number}" for number in range(2 * MAX_STAGED + 1)]
    await client.declare("flights", declaration(*many))
    held = (await load_triggers(client, len(many))).leases
    assert len(held) == len(many)
    await client.declare("flights", declaration(*many[1:]))
    loaded = await load_triggers(client, len(many))
    assert (len(loaded.leases), len(loaded.revoked)) == (len(many) - 1, 1)
    assert {lease.epoch for lease in loaded.leases} == {1}


async def test_a_project_of_large_arguments_is_declared_in_pages(client: TriggererClient) -> None:
    await client.register(registration())
    large = declaration(*(f"t{number}" for number in range(20)), text="x" * PAGE_BYTES)
    assert len(large.model_dump_json()) > MAX_BODY_BYTES
    await client.declare("flights", large)
    assert len((await load_triggers(client, 20)).leases) == 20
