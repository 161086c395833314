"""A trigger that changes its stream, or its role at the stream, leaves the old place before it takes the new one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.sources.memory.upstream import Memory
from headrace.triggerer.runner.runner import Runner
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.triggers import RunTrigger
from unit.triggerer.runner.test_runner import Api, running, until, upstream, waits, watch, workload

__all__ = ["upstream", "waits"]


@pytest.fixture
def other(tmp_path: Path) -> Memory:
    (tmp_path / "other").mkdir()
    memory = Memory(str(tmp_path / "other"))
    memory.send_many(({"n": 100 + n} for n in range(6)), lane="two")
    return memory


KINDS = [workload, watch]


def read(api: Api, stream: Memory) -> int:
    """Return how many raw events of a stream receipts have recorded."""
    return sum(receipt.read for receipt in api.receipts if receipt.stream == stream.stream_key())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_trigger_that_changes_its_upstream_stops_reading_the_old_one(
    upstream: Memory, other: Memory, waits: list[int], kind: Any
) -> None:
    api = Api()
    async with running(api, kind(1, upstream)) as runner:
        await until(lambda: read(api, upstream) == 40)
        await runner.stop([1], again=[1])
        await runner.start([kind(1, other)])
        await until(lambda: read(api, other) == 6)
        assert runner.manager.keys() == (other.stream_key(),)
        assert set(runner._watches) <= {other.stream_key()}
        assert api.fired(1) == [*range(40), *range(100, 106)]
        assert not api.kept.get(1)
        await runner.stop([1])
        assert runner.manager.keys() == ()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_trigger_that_changes_its_upstream_owes_nothing_to_the_old_one(
    upstream: Memory, other: Memory, waits: list[int], kind: Any
) -> None:
    api = Api()
    async with running(api, kind(1, upstream), watch(2, upstream)) as runner:
        await until(lambda: read(api, upstream) == 40)
        await runner.stop([1], again=[1])
        await runner.start([kind(1, other)])
        upstream.send_many(({"n": n} for n in range(40, 50)), lane="one")
        await until(lambda: read(api, upstream) == 50 and read(api, other) == 6)
    assert [one.owed for one in api.receipts if one.stream == upstream.stream_key() and one.last > 40] == [[2]]
    assert api.fired(1) == [*range(40), *range(100, 106)]
    assert api.fired(2) == list(range(50))
    assert not api.kept.get(1)


@pytest.mark.parametrize("beside", [[], [watch], [workload]])
@pytest.mark.parametrize(("before", "after"), [(workload, watch), (watch, workload)])
async def test_a_trigger_changes_between_python_and_watch_without_a_gap(
    upstream: Memory, waits: list[int], monkeypatch: pytest.MonkeyPatch, before: Any, after: Any, beside: list[Any]
) -> None:
    api = Api()
    name_keys = Runner._name_keys

    async def slow(self: Runner, *args: Any) -> None:
        upstream.send_many(({"n": n} for n in range(40, 45)), lane="one")  # while the trigger is neither
        for _ in range(200):  # the stream gets its turns meanwhile
            await asyncio.sleep(0.001)
        await name_keys(self, *args)

    async with running(api, before(1, upstream), *(kind(2, upstream) for kind in beside)) as runner:
        await until(lambda: read(api, upstream) == 40)
        monkeypatch.setattr(Runner, "_name_keys", slow)
        await runner.stop([1], again=[1])
        await runner.start([after(1, upstream)])
        monkeypatch.undo()
        upstream.send_many(({"n": n} for n in range(45, 50)), lane="one")
        await until(lambda: api.fired(1)[-1] == 49 and read(api, upstream) == 50)
        assert api.fired(2) == (list(range(50)) if beside else [])
        runner.drain({1: 5})
        await until(lambda: not api.kept.get(1))
    assert api.fired(1) == list(range(50))
    assert not api.failed
    assert {tuple(receipt.owed) for receipt in api.receipts} == {(1, 2) if beside else (1,)}


async def test_a_watch_that_becomes_unloadable_keeps_its_raw_events(upstream: Memory, waits: list[int]) -> None:
    api = Api(parked={1})
    async with running(api, watch(1, upstream), watch(2, upstream)) as runner:
        await until(lambda: read(api, upstream) == 40)
        await runner.stop([1], again=[1])
        await runner.start([workload(1, upstream, classpath="no_such_module.Trigger")])
        upstream.send_many(({"n": n} for n in range(40, 50)), lane="one")
        await until(lambda: len(api.kept.get(1, [])) == 10 and len(api.fired(2)) == 50)
    assert api.failed == [(1, "ProjectError")]


async def test_a_trigger_that_loads_later_as_a_watch_is_not_registered_any_more(
    upstream: Memory, waits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api()
    later = _later(watch(2, upstream))
    async with running(api, workload(1, upstream), later) as runner:
        await until(lambda: len(api.kept.get(2, [])) == 40)
        monkeypatch.setattr("scenario_triggers.Later", WatchTrigger, raising=False)
        await until(lambda: 2 in runner._watched)
        upstream.send_many(({"n": n} for n in range(40, 50)), lane="one")
        await until(lambda: len(api.fired(1)) == 50 and {*range(40, 50)} <= {*api.fired(2)})
        runner.drain({2: 40})
        await until(lambda: not api.kept[2])
    assert api.fired(2) == list(range(50))
    assert {kind for _, kind in api.failed} == {"ProjectError"}


def _later(workload: RunTrigger) -> RunTrigger:
    return workload.model_copy(update={"classpath": "scenario_triggers.Later"})
