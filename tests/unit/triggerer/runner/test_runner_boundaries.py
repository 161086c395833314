"""An error of a trigger, in its filter or around it, fails only that trigger."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace.sources.memory.producer import MemoryProducer
from headrace.sources.memory.upstream import Memory
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.runner import lifecycle
from headrace.triggerer.user_process import remote_stream
from headrace.wire.control.triggers import RunTrigger
from odd_triggers import Alone
from unit.triggerer.runner.test_runner import Api, _workload, running, until, upstream, waits, watch, workload

__all__ = ["upstream", "waits"]


def odd(trigger_id: int, upstream: Memory, what: str, how: dict[str, Any] | None = None) -> RunTrigger:
    kind, kwargs = upstream.serialize()
    given = {"odd": what, "name": f"t{trigger_id}", "upstream": {"classpath": kind, "kwargs": kwargs}, "how": how}
    return _workload(trigger_id, f"t{trigger_id}", "odd_triggers.Odd", given, upstream)


@pytest.mark.parametrize("what", ["exit", "interrupt", "argparse", "task exit", "init", "init base", "filter exit", "filter base"])
async def test_a_trigger_that_would_end_its_process_fails_alone(upstream: Memory, waits: list[int], what: str) -> None:
    SharedHeartbeat().start()
    api = Api(parked={1})
    others = [workload(2, upstream), watch(3, upstream)]
    async with running(api, odd(1, upstream, what), *others):
        await until(lambda: api.failed and all(len(api.fired(one.trigger_id)) == 40 for one in others))
    assert {trigger_id for trigger_id, _ in api.failed} == {1}


@pytest.mark.parametrize("what", ["reason object", "reason surrogate", "reason bytes", "odd text"])
async def test_an_unencodable_answer_delays_no_other_trigger(upstream: Memory, waits: list[int], what: str) -> None:
    api = Api()
    others = [workload(2, upstream), watch(3, upstream)]
    async with running(api, odd(1, upstream, what), *others):
        await until(lambda: len(api.letters) == 40 and all(len(api.fired(one.trigger_id)) == 40 for one in others))
    assert {tuple(letter.triggers) for letter in api.letters} == {(1,)}
    assert api.failed == []


async def test_an_unencodable_step_does_not_affect_other_steps(upstream: Memory, waits: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever a later version forgets to clean: the step alone fails, as the answer of its own turn.
    monkeypatch.setattr(remote_stream, "describe_text", lambda reason: reason)
    api = Api()
    async with running(api, odd(1, upstream, "reason object"), workload(2, upstream)):
        await until(lambda: len(api.letters) == 40 and len(api.fired(2)) == 40)
    assert {tuple(letter.triggers) for letter in api.letters} == {(1,)}


@pytest.mark.parametrize("what", ["", "wrap"])
async def test_the_end_of_an_upstream_is_not_the_triggers_failure(
    upstream: Memory, waits: list[int], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    opened: list[int] = []

    async def ending(self: MemoryProducer) -> AsyncIterator[tuple[Any, Any]]:
        opened.append(1)
        if len(opened) < 15:
            raise OSError("the upstream is away")
        async for pair in original(self):
            yield pair

    original = MemoryProducer.open_stream
    monkeypatch.setattr(MemoryProducer, "open_stream", ending)
    api = Api()
    async with running(api, odd(1, upstream, what)):
        await until(lambda: len(api.fired(1)) == 40)
    assert len(opened) == 15
    assert api.upstream == [1] * len(api.failed)


@pytest.mark.parametrize("what", ["filter hangs", "cleanup hangs", "cleanup raises", "cleanup exits"])
async def test_a_hanging_filter_or_cleanup_delays_no_other_trigger(
    upstream: Memory, waits: list[int], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(lifecycle, "CLEANUP_SECONDS", 0.05)
    monkeypatch.setattr(lifecycle, "CANCEL_SECONDS", 0.05)
    api = Api()
    async with running(api, odd(1, upstream, what), workload(2, upstream)) as runner:
        await until(lambda: len(api.fired(1)) == 40)
        await runner.stop([1])
        await runner.start([odd(1, upstream, "")])
        upstream.send_many(({"n": n} for n in range(40, 50)), lane="one")
        await until(lambda: len(api.fired(1)) == 50 and len(api.fired(2)) == 50)


async def test_state_of_released_triggers_and_streams_is_dropped(tmp_path: Path, waits: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.triggerer.runner.runner.LAST_COUNTERS_SECONDS", 0.0)
    monkeypatch.setattr("headrace.triggerer.runner.runner.MAX_RETAINED_STREAMS", 3)
    api = Api()
    async with running(api) as runner:
        for number in range(1, 11):
            (tmp_path / str(number)).mkdir()
            memory = Memory(str(tmp_path / str(number)))
            await runner.start([watch(2 * number, memory), workload(2 * number + 1, memory)])
            await runner.stop([2 * number, 2 * number + 1])
        assert runner.streams == ()
        assert len(runner.manager._counters) <= 3
        assert not runner._watches
        assert not runner._watched


async def test_stopped_triggers_are_freed_after_a_bulk_start(waits: list[int]) -> None:
    made: weakref.WeakSet[Any] = weakref.WeakSet()

    class Seen(Alone):
        def __init__(self, **_: Any) -> None:
            super().__init__()
            made.add(self)

    api = Api()
    workloads = [
        RunTrigger(trigger_id=n, name=f"t{n}", classpath="odd_triggers.Seen", kwargs={}, stream=None, queue="q", epoch=1, log_name="log")
        for n in range(1, 1101)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("odd_triggers.Seen", Seen, raising=False)
        try:
            async with running(api) as runner:
                await runner.start(workloads)
                await until(lambda: len(made) == 1100)
                await runner.stop([one.trigger_id for one in workloads])
                gc.collect()
                assert len(made) == 0
        finally:
            gc.unfreeze()


async def test_a_watch_on_a_live_stream_without_acks_fails_alone(tmp_path: Path, upstream: Memory, waits: list[int]) -> None:
    (tmp_path / "other").mkdir()
    other = Memory(str(tmp_path / "other"))
    fast = _workload(1, "t1", "odd_triggers.FastPath", {"key": other.stream_key()}, other)
    api = Api()
    async with running(api, fast, workload(2, upstream)) as runner:
        await runner.start([watch(3, other)])
        await until(lambda: (3, "StreamError") in api.failed and len(api.fired(2)) == 40)
        await runner.stop([1])
        other.send_many([{"n": 1}], lane="one")
        await until(lambda: api.fired(3) == [1])
