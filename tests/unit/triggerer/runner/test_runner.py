"""Triggers of one stream run together: a failed trigger resumes at its raw event, and all owe answers after a reopening."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from headrace import retry
from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamError
from headrace.ports.triggerer_api import TriggererApi
from headrace.sources.memory.producer import MemoryProducer
from headrace.sources.memory.upstream import Memory
from headrace.streams.subscribers.raw_text import raw_event_text
from headrace.triggerer.context import TriggerContext
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.outbox.uploader import Uploader
from headrace.triggerer.runner.leases import Leases
from headrace.triggerer.runner.runner import Limits, Runner
from headrace.triggers.raw_event import Message
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.triggers import FailureRecorded, RunTrigger
from headrace.wire.custody.backlog import BacklogItem, BacklogPage, SettleBacklog
from headrace.wire.custody.events import BatchStored, DeadLetterItem, EventBatch, EventItem
from headrace.wire.custody.receipts import CountReceipts, FindLaneOffsets, LaneOffsets, ReceiptCount
from scenario_triggers import Behaving
from support.processes.api_twin import ApiTwin
from support.processes.trigger_process import local_processes, local_producers


@dataclass
class Api(ApiTwin):
    """The api in memory, as far as triggers that run need it."""

    events: dict[str, EventItem] = field(default_factory=dict)
    letters: list[DeadLetterItem] = field(default_factory=list)
    receipts: list[Any] = field(default_factory=list)
    kept: dict[int, list[BacklogItem]] = field(default_factory=dict)
    failed: list[tuple[int, str]] = field(default_factory=list)
    upstream: list[int] = field(default_factory=list)
    parked: set[int] = field(default_factory=set)
    waits: dict[int, float] = field(default_factory=dict)
    number: int = 0

    async def store(self, batch: EventBatch) -> BatchStored:
        events = ["duplicate" if event.id in self.events else "stored" for event in batch.events]
        self.events |= {event.id: event for event in batch.events}
        self.letters += batch.dead_letters
        for spill in batch.spills:
            for trigger_id in spill.triggers:
                self.number += 1
                item = BacklogItem(
                    number=self.number, stream=spill.stream, lane=spill.lane, position=spill.position, raw=spill.raw, attempts=0
                )
                self.kept.setdefault(trigger_id, []).append(item)
        self.receipts += batch.receipts
        rest = {name: ["stored"] * len(getattr(batch, name)) for name in ("dead_letters", "spills", "receipts")}
        return BatchStored.model_validate({"events": events, **rest})

    async def backlog(self, trigger_id: int, after: int, limit: int) -> BacklogPage:
        items = [item for item in self.kept.get(trigger_id, []) if item.number > after]
        return BacklogPage(items=items[:limit], depth=len(items))

    async def settle(self, settled: SettleBacklog, trigger_id: int) -> None:
        gone = {one.number for one in settled.settled}
        self.kept[trigger_id] = [item for item in self.kept[trigger_id] if item.number not in gone]

    async def count_receipts(self, wanted: CountReceipts) -> ReceiptCount:
        return ReceiptCount(log="0" * 16, receipts=0)

    async def recorded_offsets(self, wanted: FindLaneOffsets) -> LaneOffsets:
        return LaneOffsets(offsets=[])

    async def failure(self, context: TriggerContext, error: BaseException, *, upstream: bool = False) -> FailureRecorded:
        trigger_id = context.trigger_id
        self.failed.append((trigger_id, type(error).__name__))
        self.upstream += [trigger_id] if upstream else []
        return FailureRecorded(
            decision="parked" if trigger_id in self.parked else "restart", retry_in=self.waits.get(trigger_id, 0.001), restarts=1
        )

    async def stream_failure(self, stream: str, watches: Sequence[TriggerContext], error: BaseException) -> float:
        verdicts = [await self.failure(one, error, upstream=True) for one in watches]
        return max(verdict.retry_in for verdict in verdicts)

    def fired(self, trigger_id: int) -> list[int]:
        """Return the numbers of the messages that the trigger fired on."""
        return sorted(msgspec.json.decode(event.payload)["n"] for event in self.events.values() if trigger_id in event.firings)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every wait be short, and return which in a row each was."""
    found: list[int] = []

    def next_(self: retry.Backoff, at_least: float | None = None) -> float:
        found.append(self._tries)
        self._tries += 1
        return 0.001

    monkeypatch.setattr(retry.Backoff, "next", next_)
    return found


@asynccontextmanager
async def running(api: Api, *workloads: RunTrigger, ack_timeout: float = 30, retry_wait: float = 0.0) -> AsyncIterator[Runner]:
    leases, outbox = Leases(), Outbox()
    leases.update({workload.trigger_id: 1 for workload in workloads})
    limits = Limits(ack_timeout=ack_timeout, retry_wait=retry_wait)
    processes = local_processes(outbox)
    made = Runner(cast(TriggererApi, api), leases, outbox, api.failure, api.stream_failure, limits, processes, local_producers())
    async with asyncio.timeout(60), made as runner:
        uploading = asyncio.create_task(Uploader(api, outbox, runner.manager, leases.epochs).run())
        await runner.start(workloads)
        yield runner
        while len(outbox):
            await asyncio.sleep(0)
    uploading.cancel()


def workload(trigger_id: int, upstream: Memory, how: dict[str, Any] | None = None, *, classpath: str = "") -> RunTrigger:
    kind, kwargs = upstream.serialize()
    name = f"t{trigger_id}"
    trigger = Behaving(name=name, upstream={"classpath": kind, "kwargs": kwargs}, how=how)
    found, given = trigger.serialize()
    return _workload(trigger_id, name, classpath or found, given, upstream)


def watch(trigger_id: int, upstream: Memory) -> RunTrigger:
    return _workload(trigger_id, f"w{trigger_id}", *WatchTrigger(upstream=upstream).serialize(), upstream)


def _workload(trigger_id: int, name: str, classpath: str, kwargs: dict[str, Any], upstream: Memory) -> RunTrigger:
    return RunTrigger(
        trigger_id=trigger_id,
        name=name,
        classpath=classpath,
        kwargs=kwargs,
        stream=upstream.stream_key(),
        queue="default",
        epoch=1,
        log_name="log",
        backlog=0,
    )


@pytest.fixture
def upstream(tmp_path: Path) -> Memory:
    memory = Memory(str(tmp_path))
    memory.send_many(({"n": n} for n in range(40)), lane="one")
    return memory


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def test_attempts_and_waits_are_counted_per_raw_event(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream, {"poison": [10, 3]}), workload(2, upstream)):
        await until(lambda: len(api.letters) == 4 and len(api.fired(1)) == 36 and len(api.fired(2)) == 40)
    assert [(letter.kind, letter.attempts, letter.triggers) for letter in api.letters] == [("failed", 5, [1])] * 4
    assert api.fired(1) == [n for n in range(40) if n % 10 != 3]
    assert waits == [0, 1, 2, 3, 4] * 4


async def test_a_lane_waiting_for_a_retry_delays_no_other_lane(upstream: Memory, waits: list[int]) -> None:
    upstream.send_many(({"n": n} for n in range(100, 140)), lane="two")
    api = Api()
    async with running(api, workload(1, upstream, {"poison": [10**9, 3]}), workload(2, upstream), retry_wait=1e6) as runner:
        await until(lambda: len(api.fired(1)) == 43 and len(api.fired(2)) == 80)
        [retry] = runner.manager.statistics(upstream.stream_key()).retrying
    assert api.fired(1) == [0, 1, 2, *range(100, 140)]
    assert (retry.trigger_id, retry.lane, retry.attempts) == (1, "one", 2)
    assert not api.letters


async def test_an_event_has_the_trace_of_its_raw_event_even_from_the_backlog(tmp_path: Path) -> None:
    upstream = Memory(str(tmp_path))
    traces = {n: f"00-{n + 1:032x}-{n + 1:016x}-01" for n in range(4)}
    upstream.send_many(({"n": n, "traceparent": traces[n]} for n in (0, 1)), lane="one")
    upstream.send_many([{"n": 9, "traceparent": "none"}], lane="one")
    api = Api()
    for trigger_id, n in ((1, 2), (2, 3)):
        raw = msgspec.json.encode({"n": n, "traceparent": traces[n]}).decode()
        item = BacklogItem(number=n, stream=upstream.stream_key(), lane="one", position=90 + n, raw=raw, attempts=1)
        api.kept[trigger_id] = [item]
    async with running(api, workload(1, upstream), watch(2, upstream)) as runner:
        runner.drain({2: 1})
        await until(lambda: len(api.fired(1)) == 4 and len(api.fired(2)) == 4)
    found = {(event.firings[0], msgspec.json.decode(event.payload)["n"]): event.trace for event in api.events.values()}
    assert found == {(1, 9): None, (2, 9): None} | {(1, n): traces[n] for n in (0, 1, 2)} | {(2, n): traces[n] for n in (0, 1, 3)}


async def test_raw_events_of_an_unloadable_trigger_go_to_its_backlog(upstream: Memory, waits: list[int]) -> None:
    api = Api(parked={2})
    async with running(api, workload(1, upstream), workload(2, upstream, classpath="nowhere.Trigger")):
        await until(lambda: len(api.kept.get(2, [])) == 40 and len(api.fired(1)) == 40)
    assert [item.position for item in api.kept[2]] == sorted(item.position or 0 for item in api.kept[2])
    assert api.failed == [(2, "ProjectError")]


async def test_a_hanging_filter_fails_and_restarts(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream, {"hang_at": 7}), workload(2, upstream), ack_timeout=0.5):
        await until(lambda: len(api.fired(1)) == 40 and len(api.fired(2)) == 40 and not api.kept.get(1))
    assert (1, "AckTimeout") in api.failed


async def test_a_filter_that_fails_after_firing_fires_the_same_event_again(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream, {"fail_after": 7})):
        await until(lambda: len(set(api.fired(1))) == 40)
    assert api.failed == [(1, "RuntimeError")]
    assert api.fired(1) == list(range(40))


async def test_a_filter_that_cancels_itself_restarts(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream, {"cancel_at": 7}), workload(2, upstream)):
        await until(lambda: len(api.fired(1)) == 40 and len(api.fired(2)) == 40)
    assert api.failed == [(1, "RuntimeError")]


async def test_a_filter_that_returns_restarts_without_missing_events(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream, {"return_turns": 2}), workload(2, upstream)):
        await until(lambda: len(api.fired(1)) == 40 and len(api.fired(2)) == 40 and not api.kept.get(1))
    assert api.failed == [(1, "RuntimeError")] * 2


async def test_a_redriven_raw_event_is_matched_again_by_its_watch(upstream: Memory, waits: list[int]) -> None:
    api = Api(number=2)
    place = {"stream": upstream.stream_key(), "lane": "one", "attempts": 0, "redriven": True}
    api.kept[1] = [
        BacklogItem.model_validate({"number": 1, "position": 900, "raw": '{"n": 900}', **place}),
        BacklogItem.model_validate({"number": 2, "position": 901, "raw": "still broken", **place}),
    ]
    async with running(api, watch(1, upstream)) as runner:
        runner.drain({1: 2})
        await until(lambda: len(api.fired(1)) == 41 and not api.kept[1])
    assert api.fired(1)[-1] == 900
    assert api.letters == []  # the letter that stands for the broken one opens again when it is settled


async def test_events_from_a_former_stream_of_a_python_trigger_keep_its_name(upstream: Memory, waits: list[int]) -> None:
    api = Api(number=3)
    place = {"stream": "memory:former", "lane": "one", "attempts": 0}
    api.kept[1] = [
        BacklogItem.model_validate({"number": 1, "position": 900, "raw": '{"n": 900}', **place}),
        BacklogItem.model_validate({"number": 2, "position": 903, "raw": '{"n": 903}', **place}),
        BacklogItem.model_validate({"number": 3, "position": 904, "raw": '{"n": 904}', **place}),
    ]
    async with running(api, workload(1, upstream, {"poison": [1000, 903], "reject": [1000, 904]})):
        await until(lambda: len(api.fired(1)) == 41 and not api.kept[1] and len(api.letters) == 2)
    former = [event for event in api.events.values() if event.position is not None and event.position >= 900]
    assert [(event.stream, event.source, event.position) for event in former] == [("memory:former", "headrace:memory:former", 900)]
    assert {event.stream for event in api.events.values() if event.id != former[0].id} == {upstream.stream_key()}
    letters = [(letter.kind, letter.stream, letter.position) for letter in api.letters]
    assert letters == [("failed", "memory:former", 903), ("rejected", "memory:former", 904)]


async def test_a_watch_that_is_stopped_decodes_no_more_of_its_backlog(
    upstream: Memory, waits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def away(self: MemoryProducer, message: Message) -> Message:
        nonlocal asked
        asked += 1
        raise StreamError("The schema registry does not answer.")

    monkeypatch.setattr(MemoryProducer, "decode_again", away)
    api = Api(number=1)
    broken = raw_event_text(Message(b"\xff", "one", 900, malformed="no schema"))
    api.kept[1] = [BacklogItem(number=1, stream=upstream.stream_key(), lane="one", position=900, raw=broken)]
    async with running(api, watch(1, upstream)) as runner:
        runner.drain({1: 1})
        await until(lambda: asked > 3)
        await runner.stop([1])
        assert "redrive 1" not in {task.get_name() for task in asyncio.all_tasks()}
    assert len(api.kept[1]) == 1


async def test_an_unusable_redriven_raw_event_does_not_stop_other_raw_events(upstream: Memory, waits: list[int]) -> None:
    api = Api(number=10)
    kept = [
        '{"id": []}',
        '{"id": "\\ud800"}',
        "{}",
        '{"id": ' + "9" * 5_000 + "}",
        '{"id": "' + "x" * 5_000 + '"}',
        '{"id": "fine", "n": 900}',
    ]
    for trigger_id in (1, 2):
        api.kept[trigger_id] = [
            BacklogItem(number=number, stream=upstream.stream_key(), lane="one", position=900 + number, raw=raw, attempts=0)
            for number, raw in enumerate(kept, 1)
        ]
    watches = [
        _workload(number, f"w{number}", *WatchTrigger(upstream=upstream, id="$.id", source=source).serialize(), upstream)
        for number, source in enumerate(("s", "$.source"), 1)
    ]
    async with running(api, *watches) as runner:
        runner.drain({1: 6, 2: 6})
        await until(lambda: not api.kept[1] and not api.kept[2])
    assert api.fired(1) == [900]
    assert api.fired(2) == []


async def test_all_triggers_owe_answers_when_a_stream_reopens(upstream: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    opened = 0
    producer = Memory.producer

    def failing(self: Memory) -> Any:
        nonlocal opened
        opened += 1
        if opened < 4:
            raise ConnectionError("the broker is away")
        return producer(self)

    monkeypatch.setattr(Memory, "producer", failing)
    # The filter is back long before the declared one would open the stream.
    api.waits = {1: 0.0, 2: 1000.0}
    async with running(api, workload(1, upstream), watch(2, upstream)):
        await until(lambda: len(api.fired(1)) == 40 and len(api.fired(2)) == 40)
        await until(lambda: sum(receipt.read for receipt in api.receipts) == 40)
    assert {tuple(sorted(receipt.owed)) for receipt in api.receipts} == {(1, 2)}


async def test_a_parked_trigger_does_not_restart_and_its_backlog_fills(upstream: Memory, waits: list[int]) -> None:
    api = Api(parked={1})
    async with running(api, workload(1, upstream, {"fail_turns": 1000}), workload(2, upstream), ack_timeout=0.5):
        await until(lambda: len(api.kept.get(1, [])) == 40 and len(api.fired(2)) == 40)
    assert api.failed == [(1, "RuntimeError")]
    assert api.upstream == []


async def test_a_parked_trigger_is_registered_and_not_started(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    parked = workload(1, upstream).model_copy(update={"parked": True})
    async with running(api, parked, workload(2, upstream)):
        await until(lambda: len(api.kept.get(1, [])) == 40 and len(api.fired(2)) == 40)
    assert api.fired(1) == []
    assert api.failed == []


async def test_failures_on_a_raw_event_do_not_count_against_the_trigger(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream, {"poison": [40, 3]})):
        await until(lambda: len(api.letters) == 1 and len(api.fired(1)) == 39)
    assert api.upstream == [1] * 5


async def test_an_unloadable_trigger_is_loaded_once_possible(upstream: Memory, waits: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    async with running(api, workload(1, upstream), workload(2, upstream, classpath="scenario_triggers.Later")):
        await until(lambda: (2, "ProjectError") in api.failed)
        monkeypatch.setattr("scenario_triggers.Later", Behaving, raising=False)
        await until(lambda: len(api.fired(1)) == 40 and len(api.fired(2)) == 40 and not api.kept.get(2))


@dataclass
class Away(Api):
    """An api that is away from the first receipt on, until it is back."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    back: asyncio.Event = field(default_factory=asyncio.Event)

    async def store(self, batch: EventBatch) -> BatchStored:
        if batch.receipts:
            self.asked.set()
            await self.back.wait()
        return await super().store(batch)


async def test_unresolved_raw_events_of_a_released_stream_go_to_its_next_owner(
    upstream: Memory, waits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Away()
    advance = MemoryProducer.advance

    async def slow(self: MemoryProducer, batch: Sequence[AdvanceItem]) -> None:
        for _ in range(100):  # others get their turns meanwhile
            await asyncio.sleep(0)
        await advance(self, batch)

    monkeypatch.setattr(MemoryProducer, "advance", slow)
    workloads = watch(1, upstream), workload(2, upstream), workload(3, upstream, {"pause": [2, 0.001]})
    async with running(api, *workloads) as runner:
        await api.asked.wait()
        giving = asyncio.create_task(runner.stop([1, 2, 3]))
        await until(lambda: not runner.manager.keys())
        api.back.set()
        await giving
    assert {tuple(sorted(receipt.owed)) for receipt in api.receipts} == {(1, 2, 3)}
    async with running(api, *workloads):
        await until(lambda: all(len(api.fired(one)) >= 40 for one in (1, 2, 3)) and not any(api.kept.values()))
    assert api.fired(1) == api.fired(2) == api.fired(3) == list(range(40))


async def test_raw_events_during_a_handover_go_to_the_next_owner(
    upstream: Memory, tmp_path: Path, waits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api()
    other = Memory(f"{tmp_path}/other")
    other.send_many(({"n": n} for n in range(40)), lane="one")
    aclose = MemoryProducer.aclose

    async def slow(self: MemoryProducer) -> None:
        monkeypatch.undo()
        for one in (upstream, other):  # one is closing, and the other, held, has asked for its next already
            one.send({"n": 40}, lane="one")
        for _ in range(200):  # others get their turns meanwhile
            await asyncio.sleep(0)
        await aclose(self)

    workloads = [workload(1, upstream), workload(2, upstream), workload(3, other), workload(4, other)]
    async with running(api, *workloads) as runner:
        await until(lambda: sum(receipt.read for receipt in api.receipts) == 80)
        await runner.quiesce()
        monkeypatch.setattr(MemoryProducer, "aclose", slow)
        await runner.stop([1, 2, 3, 4])
    async with running(api, *workloads):
        await until(lambda: sum(receipt.read for receipt in api.receipts) == 82)
    assert [api.fired(one) for one in (1, 2, 3, 4)] == [list(range(41))] * 4
    assert {tuple(sorted(receipt.owed)) for receipt in api.receipts} == {(1, 2), (3, 4)}


async def test_everything_read_is_resolved_when_a_stream_has_quiesced(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream), watch(2, upstream)) as runner:
        await until(lambda: api.fired(1))
        await runner.quiesce()
        assert runner.manager.statistics(upstream.stream_key()).outstanding == 0
        assert len(api.fired(1)) == len(api.fired(2)) == sum(receipt.read for receipt in api.receipts)
        upstream.send_many([{"n": 100}, {"n": 101}], lane="one")
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert runner.manager.statistics(upstream.stream_key()).outstanding <= 1  # what the upstream had under way
        assert 101 not in api.fired(1)
