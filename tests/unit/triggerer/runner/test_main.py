"""Release in the runner: a trigger is reported as stopped once no stored or pending item names it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from headrace.client.http.proxied_session import ProxiedSession
from headrace.client.triggerer import TriggererClient
from headrace.errors import ApiUnavailable
from headrace.sources.memory.upstream import Memory
from headrace.triggerer.ipc.api_calls import ApiCalls
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.messages import Call, RunTriggers, Stopped
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.runner import main
from headrace.triggerer.runner.main import RunnerMain
from headrace.triggerer.runner.runner import Limits
from headrace.triggerer.supervisor.api_proxy import ApiProxy
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.jobs import JobRegistered
from headrace.wire.control.triggers import DeclaredTrigger, DeclareProject
from support.processes.calls import clean_up_triggers, load_triggers
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import registration
from support.processes.trigger_process import start_local

PROJECT = "flights"


class Supervisor:
    """Passes the runner's calls on to a real api, which can be `away` for the runner only, and says what is held."""

    def __init__(self, client: TriggererClient, link: Channel) -> None:
        self._client = client
        self._link = link
        self._relay = ApiProxy(self, link)
        self._known: dict[int, int] = {}
        self.away = False
        self.beating = asyncio.Lock()
        """Held by each beat. A change of leases within a beat may look like their release."""
        self.refused = asyncio.Event()
        self.stopped = asyncio.Event()

    async def forward(self, method: str, path: str, content: bytes | None) -> bytes:
        if self.away:
            self.refused.set()
            raise ApiUnavailable("away")
        return await self._client.forward(method, path, content)

    async def listen(self) -> None:
        while (frame := await self._link.receive()) is not None:
            if isinstance(frame, Call):
                await self._relay.forward(frame)
            elif isinstance(frame, Stopped):
                await clean_up_triggers(self._client, frame.epochs)
                self.stopped.set()

    async def beat(self) -> None:
        """Tell the runner, again and again, what the api says that is held, as heartbeats do."""
        while True:
            async with self.beating:
                loaded = await load_triggers(self._client, 10)
                epochs = {lease.trigger_id: lease.epoch for lease in loaded.leases}
                new = [one for one, epoch in epochs.items() if self._known.get(one) != epoch]
                gone = [one for one in self._known if one not in epochs]
                self._known = epochs
                pages = [(await self._client.workloads(new)).content] if new else []
                await self._link.send(RunTriggers(epochs, gone, pages, loaded.revoked, {}, list(loaded.revoked)))
            await asyncio.sleep(0.02)


@asynccontextmanager
async def supervised(api: Api, client: TriggererClient) -> AsyncIterator[Supervisor]:
    ours, theirs = socket.socketpair()
    end, link = await Channel.open(ours), await Channel.open(theirs)
    supervisor = Supervisor(client, end)
    calls = ApiCalls(link)
    relayed = TriggererClient(api.url, key="", session=ProxiedSession(calls.call))
    relayed.adopt(JobRegistered(job_id=0, token="", heartbeat=0))
    works = (
        supervisor.listen(),
        supervisor.beat(),
        RunnerMain(link, calls, relayed, Limits(), SharedHeartbeat(), start_local).run(report_seconds=60),
    )
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield supervisor
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for one in (end, link):
            one.close()


def _watches(upstream: Memory, *names: str) -> DeclareProject:
    classpath, kwargs = WatchTrigger(upstream=upstream).serialize()
    stream = upstream.stream_key()
    return DeclareProject(
        triggers=[DeclaredTrigger(name=name, classpath=classpath, kwargs=kwargs, stream=stream) for name in names], pipelines=[]
    )


async def _head(api: Api, head: int) -> None:
    while api.store.log.head().head != head:
        await asyncio.sleep(0.01)


@pytest.mark.timeout(60)
async def test_items_of_a_released_trigger_are_stored_after_an_api_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "_HANDOVER_SECONDS", 0.05)
    upstream = Memory(str(tmp_path))
    with serving(tmp_path) as api:
        async with TriggererClient(api.url, key=KEY) as client:
            await client.register(registration())
            await client.declare(PROJECT, _watches(upstream, "stays", "goes"))
            async with supervised(api, client) as supervisor:
                upstream.send_many({"n": n} for n in range(5))
                await _head(api, 5)
                supervisor.away = True
                upstream.send_many({"n": n} for n in range(5, 10))
                await supervisor.refused.wait()
                await client.declare(PROJECT, _watches(upstream, "stays"))
                with suppress(TimeoutError):
                    await asyncio.wait_for(supervisor.stopped.wait(), 0.5)  # long enough to be said too early
                supervisor.away = False
                await _head(api, 10)
                await supervisor.stopped.wait()
                while upstream._store().lanes["0"].committed != 10:
                    await asyncio.sleep(0.01)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("beside", [[], ["stays"]])
async def test_a_trigger_that_moves_to_another_stream_leaves_the_old_one_and_stays_leased(tmp_path: Path, beside: list[str]) -> None:
    old, new = Memory(f"{tmp_path}/old"), Memory(f"{tmp_path}/new")
    with serving(tmp_path) as api:
        async with TriggererClient(api.url, key=KEY) as client:
            await client.register(registration())
            await client.declare(PROJECT, _watches(old, "moves", *beside))
            async with supervised(api, client) as supervisor:
                old.send_many({"n": n} for n in range(5))
                await _head(api, 5)
                new.send_many({"n": n} for n in range(5))
                kept = _watches(old, *beside).triggers
                async with supervisor.beating:
                    await client.declare(PROJECT, DeclareProject(triggers=[*_watches(new, "moves").triggers, *kept], pipelines=[]))
                await _head(api, 10)
                while new._store().lanes["0"].committed != 5:
                    await asyncio.sleep(0.01)
                streams = {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("headrace stream ")}
                assert streams == {f"headrace stream {one.stream_key()}" for one in ([old, new] if beside else [new])}
                assert not supervisor.stopped.is_set()
                assert [lease.trigger_id for lease in (await load_triggers(client, 10)).leases] == [*range(1, 2 + len(beside))]
