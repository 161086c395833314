"""The event loop stays responsive while many triggers start or leave: their work is done in slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.core.ledger.subscribers import SubscriberRegistry
from headrace.core.matching.patterns.match_index import MatchIndex
from headrace.ports.triggerer_api import TriggererApi
from headrace.sources.memory.upstream import Memory
from headrace.streams.manager import SharedStreamManager
from headrace.triggerer import cooperative_yield
from headrace.triggerer.context import TriggerContext
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.runner import runner as runner_module
from headrace.triggerer.runner.leases import Leases
from headrace.triggerer.runner.runner import Limits, Runner
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.triggers import FailureRecorded, RunTrigger
from headrace.wire.custody.receipts import CountReceipts, FindLaneOffsets, LaneOffsets, ReceiptCount
from support.processes.api_twin import ApiTwin
from support.processes.trigger_process import local_processes, local_producers

WATCHES = 300


class Api(ApiTwin):
    """An API without receipts, which parks every trigger that fails."""

    async def count_receipts(self, request: CountReceipts) -> ReceiptCount:
        return ReceiptCount(log="0" * 16, receipts=0)

    async def recorded_offsets(self, request: FindLaneOffsets) -> LaneOffsets:
        return LaneOffsets(offsets=[])

    async def failure(self, context: TriggerContext, error: BaseException, *, upstream: bool = False) -> FailureRecorded:
        return FailureRecorded(decision="parked", retry_in=0, restarts=1)

    async def stream_failure(self, stream: str, watches: Sequence[TriggerContext], error: BaseException) -> float:
        return 0.0


@asynccontextmanager
async def running() -> AsyncIterator[Runner]:
    api, outbox = Api(), Outbox()
    processes = local_processes(outbox)
    made = Runner(cast(TriggererApi, api), Leases(), outbox, api.failure, api.stream_failure, Limits(), processes, local_producers())
    async with asyncio.timeout(60), made as runner:
        yield runner


def workload(trigger_id: int, upstream: Memory, *, classpath: str = "", number: int = 0) -> RunTrigger:
    found, kwargs = WatchTrigger(upstream=upstream, match={"number": [number]}).serialize()
    return RunTrigger(
        trigger_id=trigger_id,
        name=f"t{trigger_id}",
        classpath=classpath or found,
        kwargs=kwargs,
        stream=upstream.stream_key(),
        queue="default",
        epoch=1,
        log_name="log",
    )


class Turns:
    """Counts what is done in one turn of the loop."""

    def __init__(self) -> None:
        self._now = self.most = self.all = 0

    def did(self) -> None:
        self._now += 1
        self.all += 1
        self.most = max(self.most, self._now)

    async def run(self) -> None:
        while True:
            self._now = 0
            await asyncio.sleep(0)


async def test_the_watch_index_of_a_stream_is_built_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, add = Turns(), MatchIndex.add

    def counted(self: MatchIndex, *given: Any) -> None:
        turns.did()
        add(self, *given)

    monkeypatch.setattr(MatchIndex, "add", counted)
    monkeypatch.setattr(cooperative_yield, "_MAX_SECONDS", -1.0)  # every rest is one
    upstream = Memory(str(tmp_path))
    async with running() as runner:
        turning = asyncio.create_task(turns.run())
        await runner.start([workload(one, upstream, number=one) for one in range(WATCHES)])
        turning.cancel()
        assert (turns.all, turns.most) == (WATCHES, 1)  # and none was made again for the stream
        assert runner.manager.keys() == (upstream.stream_key(),)


async def test_watches_leave_a_running_stream_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared, declare = [], SubscriberRegistry.declare

    def counted(self: SubscriberRegistry, trigger_ids: tuple[int, ...]) -> None:
        declared.append(len(trigger_ids))
        declare(self, trigger_ids)

    upstream = Memory(str(tmp_path))
    monkeypatch.setattr(runner_module, "UNWATCH_BATCH_SIZE", 100)
    async with running() as runner:
        await runner.start([workload(one, upstream, number=one) for one in range(WATCHES)])
        monkeypatch.setattr(SubscriberRegistry, "declare", counted)
        await runner.stop(range(1, WATCHES))
        assert declared == [200, 100, 1]
        assert runner.manager.keys() == (upstream.stream_key(),)
        await runner.stop([0])
        assert runner.manager.keys() == ()


async def test_triggers_leave_a_running_stream_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[tuple[list[int], Hashable]] = []
    unregister = SharedStreamManager.unregister

    async def noted(self: SharedStreamManager, *, trigger_ids: Iterable[int], key: Hashable) -> None:
        left.append((sorted(trigger_ids), key))
        await unregister(self, trigger_ids=left[-1][0], key=key)

    monkeypatch.setattr(SharedStreamManager, "unregister", noted)
    upstream, other = Memory(f"{tmp_path}/one"), Memory(f"{tmp_path}/other")
    lost = "no_such_module.Trigger"  # it cannot be loaded: what is for it is kept
    async with running() as runner:
        await runner.start([workload(0, upstream), *(workload(one, upstream, classpath=lost) for one in range(1, 100))])
        await runner.start([workload(100, other), workload(101, other, classpath=lost)])
        await runner.stop([*range(1, 100), 100, 101])
        assert left == [([*range(1, 100)], upstream.stream_key())]  # of a stream that is handed over nobody leaves
        assert runner.manager.keys() == (upstream.stream_key(),)
