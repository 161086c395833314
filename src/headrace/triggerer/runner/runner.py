"""Run triggers: watches and filters on shared streams, others alone. Report failures and restart failed triggers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import structlog

from headrace.errors import StreamError, StreamMoved
from headrace.ports.triggerer_api import TriggererApi
from headrace.streams.manager import SharedStreamManager
from headrace.streams.watches import WatchSet
from headrace.triggerer.context import TriggerContext
from headrace.triggerer.cooperative_yield import CooperativeYield
from headrace.triggerer.gc_freeze import gc_frozen
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.outbox.receipt_recorder import ApiReceiptRecorder
from headrace.triggerer.outbox.sink import OutboxSink
from headrace.triggerer.process_pools.producer_factory import ProducerFactory
from headrace.triggerer.process_pools.producer_pool import ProducerProcesses
from headrace.triggerer.process_pools.trigger_pool import TriggerProcesses
from headrace.triggerer.runner.backlog_decoder import BacklogDecoder
from headrace.triggerer.runner.dead_letter_copier import DeadLetterCopiers
from headrace.triggerer.runner.execution import TriggerExecution
from headrace.triggerer.runner.leases import Leases
from headrace.triggerer.runner.lifecycle import ReportFailure, ReportStreamFailure, TriggerLifecycle
from headrace.triggerer.runner.placement.loaded_trigger import LoadedTrigger
from headrace.triggerer.runner.placement.placements import Placements
from headrace.triggerer.runner.placement.trigger_factory import TriggerFactory
from headrace.triggerer.runner.redrive import Redrive
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.task_groups import cancel_all, gather_limited
from headrace.triggers.base import stream_name
from headrace.triggers.project_paths import resolve_each_path_once
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.jobs import Blocked
from headrace.wire.control.triggers import RunTrigger

STOP_SECONDS: Final = 15.0
"""Time limit for stopping any number of triggers. Triggers that take longer are abandoned."""

OVERFLOW_WAIT_SECONDS: Final = 0.02
"""How long a stream waits for a slow trigger process before raw events are spilled."""

LAST_COUNTERS_SECONDS: Final = 60.0
"""How long a stream's last counters are reported after its last trigger has left."""

UNWATCH_BATCH_SIZE: Final = 1000
"""Watches that leave a running stream in one turn of the loop."""

MAX_RETAINED_STREAMS: Final = 1000
"""Streams without triggers whose counters are retained. They continue if the stream returns, since a job's totals must not decrease."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits: for a trigger to answer a raw event, for an upstream to advance, for a trigger process to turn its loop.

    `retry_wait`: maximum seconds before the last attempt at a raw event on which a trigger fails.
    """

    ack_timeout: float = 300.0
    advance_timeout: float = 60.0
    retry_wait: float = 250.0
    watchdog: WatchdogPolicy = field(default_factory=WatchdogPolicy)


class Runner:
    """The triggers of this process. Use it as `async with Runner(...)`; on exit every stream is stopped.

    All triggers of a stream start and stop together. Python triggers are registered before the stream is read. Raw
    events that one of them cannot process, also while it restarts or is parked, go to its backlog. A trigger that is
    moved to another stream leaves the old one first.
    """

    def __init__(
        self,
        api: TriggererApi,
        leases: Leases,
        outbox: Outbox,
        report_failure: ReportFailure,
        report_stream_failure: ReportStreamFailure,
        limits: Limits,
        processes: TriggerProcesses,
        producers: ProducerProcesses,
        heartbeat: SharedHeartbeat | None = None,
        copiers: DeadLetterCopiers | None = None,
    ) -> None:
        self._report_failure = report_failure
        self._report_stream_failure = report_stream_failure
        self._processes = processes
        self._producers = producers
        self.copiers = copiers or DeadLetterCopiers(api)
        self._heartbeat = heartbeat = heartbeat or SharedHeartbeat()
        sink = OutboxSink(outbox, self._mark_rejected, self._ended, self._filter_failed)
        self.manager = SharedStreamManager(
            sink=sink,
            overflow="spill",
            recorder=ApiReceiptRecorder(api, outbox),
            ack_timeout=limits.ack_timeout,
            advance_timeout=limits.advance_timeout,
            retry_wait=limits.retry_wait,
            budget=outbox.budget,
            overflow_wait=OVERFLOW_WAIT_SECONDS,
            make_producer=ProducerFactory(processes, producers, outbox.budget, self.copiers.start).make,
        )
        decoder, reopened = BacklogDecoder(self.manager.producer), self.copiers.wake
        self._redrive = Redrive(api, outbox, leases.epoch, decoder, reopened)
        self._factory = TriggerFactory(api, outbox, self.manager, leases.epoch, decoder, reopened, heartbeat)
        self._watches: dict[str, dict[int, WatchTrigger]] = defaultdict(dict)
        self._watched: dict[int, TriggerContext] = {}
        self._placements = Placements()
        self._lifecycles: dict[int, TriggerLifecycle] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._streams: dict[Hashable, None] = {}
        self._left_streams: dict[Hashable, float] = {}
        self._reopening: dict[str, asyncio.Task[None]] = {}
        self._log = structlog.get_logger(__name__)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._redrive.stop()
        await self.copiers.stop()
        await cancel_all([*self._reopening.values(), *self._loading.values()])
        for lifecycle in self._lifecycles.values():
            lifecycle.end()
        # The streams first, as in `stop`.
        await self.manager.stop_all()
        until = asyncio.get_running_loop().time() + STOP_SECONDS
        await gather_limited(lifecycle.stop(until=until) for lifecycle in self._lifecycles.values())
        await self._processes.close()
        await self._producers.close()

    @property
    def blocked(self) -> Blocked | None:
        """The trigger or the producer that currently blocks its process for the longest time, or None."""
        blocks = [blocked for blocked in (self._processes.blocked, self._producers.blocked) if blocked is not None]
        return max(blocks, key=lambda one: one.seconds, default=None)

    @property
    def streams(self) -> tuple[Hashable, ...]:
        """Keys of the streams that have triggers, and of streams whose last trigger has left recently."""
        recent = asyncio.get_running_loop().time() - LAST_COUNTERS_SECONDS
        return (*self._streams, *(key for key, when in self._left_streams.items() if when > recent))

    async def start(self, workloads: Iterable[RunTrigger]) -> None:
        """Load these triggers and start them."""
        await self.begin(await self.load(workloads))

    async def load(self, workloads: Iterable[RunTrigger]) -> list[LoadedTrigger]:
        """Load triggers without an effect on the running ones."""
        workloads = list(workloads)
        yielder = CooperativeYield()
        loaded: list[LoadedTrigger] = []
        with gc_frozen(len(workloads)), resolve_each_path_once():
            for workload in workloads:
                loaded.append(self._factory.load(workload))
                await yielder.checkpoint()
        return loaded

    def moved(self, loaded: Iterable[LoadedTrigger]) -> list[int]:
        """Return the running triggers that are moved to another stream. They must not stay at the old one."""
        return self._placements.moved(loaded)

    async def begin(self, loaded: Sequence[LoadedTrigger]) -> None:
        """Start loaded triggers. One that cannot be loaded is reported as failed, and its raw events go to its backlog."""
        with gc_frozen(len(loaded)):
            await self._begin_all(loaded)

    async def _begin_all(self, loaded: Sequence[LoadedTrigger]) -> None:
        if moved := self.moved(loaded):  # they were not known to move when they stopped
            await self._release(moved, {})
        yielder = CooperativeYield()
        await self._name_keys(loaded, yielder)
        keys = {one.key for one in loaded if one.key is not None}
        # Nothing is read until all triggers are registered, so that each one receives the stream's first event.
        for key in keys:
            self.manager.hold(key)
        try:
            await self._register(loaded, yielder)
            for one in loaded:
                self._begin(one)
                await yielder.checkpoint()
            await self._processes.wait_ready()
        finally:
            for key in keys:
                self.manager.release(key)

    async def stop(self, trigger_ids: Iterable[int], *, again: Iterable[int] = (), dropped: Sequence[int] = ()) -> None:
        """Stop these triggers. Those in `again`, which restart immediately, stay registered, so that they miss no raw event.

        Triggers that are `moved` are not in `again`. Raw events that a stream still owes when its last trigger stops
        stay with the broker. No task run waits for the triggers in `dropped`.
        """
        stopping = list(trigger_ids)
        await self._redrive.stop(stopping)
        await cancel_all([self._loading.pop(one) for one in stopping if one in self._loading])
        lifecycles = {one: self._lifecycles.pop(one) for one in stopping if one in self._lifecycles}
        await self._release(set(stopping) - set(again), lifecycles, dropped)

    async def _release(self, released: Collection[int], lifecycles: Mapping[int, TriggerLifecycle], dropped: Sequence[int] = ()) -> None:
        """Stop these lifecycles, and remove the released triggers from their streams."""
        placements = self._placements
        left, ended = placements.keys(without=released), placements.keys_of(released)
        await self._end_streams(ended - left, [lifecycles[one] for one in lifecycles if placements.key(one) not in left])
        until = asyncio.get_running_loop().time() + STOP_SECONDS
        await gather_limited([lifecycle.stop(until=until, dropped=one in dropped) for one, lifecycle in lifecycles.items()])
        await self._leave(released)
        for key in ended & left:
            self.manager.release(key)
        await self.copiers.stop(stream_name(key) for key in ended - left)
        for key in ended - left:
            self._drop_stream(key)

    def _drop_stream(self, key: Hashable) -> None:
        """Drop the state of a stream whose last trigger has left, except its last counters."""
        if key in self._streams:
            del self._streams[key]
            self._left_streams[key] = asyncio.get_running_loop().time()
            while len(self._left_streams) > MAX_RETAINED_STREAMS:
                oldest = next(iter(self._left_streams))
                del self._left_streams[oldest]
                self.manager.drop_counters(oldest)
        if isinstance(key, str):
            self._watches.pop(key, None)

    async def _end_streams(self, keys: Collection[Hashable], lifecycles: Iterable[TriggerLifecycle]) -> None:
        """Stop streams that are handed over, before any of their triggers leaves.

        A trigger that leaves a running stream owes nothing any more. The last one to leave would therefore resolve all
        raw events, and the broker would advance past raw events that the next owner never sees.
        """
        for lifecycle in lifecycles:
            lifecycle.end()
        await cancel_all([self._reopening.pop(key) for key in [*self._reopening] if key in keys])
        await gather_limited([self.manager.stop(key) for key in keys])

    async def quiesce(self, trigger_ids: Iterable[int] | None = None) -> None:
        """Stop reading the streams of these triggers, or all streams if None; return when everything read is advanced."""
        keys = self._placements.keys() if trigger_ids is None else self._placements.keys_of(trigger_ids)
        await gather_limited(self.manager.quiesce(key) for key in keys)

    def drain(self, backlogs: Mapping[int, int]) -> None:
        """Make triggers read backlogs that the API reports as not empty, such as after a redrive."""
        for trigger_id in backlogs:
            key = self._placements.key(trigger_id)
            if key is None:
                continue
            watch = self._watches[key].get(trigger_id) if isinstance(key, str) and key in self._watches else None
            if watch is not None:
                self._redrive.start(trigger_id, watch)
            else:
                self.manager.recheck_backlog(trigger_id=trigger_id, key=key)

    async def _name_keys(self, loaded: Sequence[LoadedTrigger], yielder: CooperativeYield) -> None:
        """Place the triggers. Assign the stream's key to those without one, which could not be loaded."""
        named = {stream_name(key): key for key in {*(one.key for one in loaded if one.key is not None), *self._placements.keys()}}
        for one in loaded:
            await yielder.checkpoint()
            if one.key is None:
                one.key = named.get(one.workload.stream or "")
            self._placements.add(one)

    async def _register(self, loaded: Sequence[LoadedTrigger], yielder: CooperativeYield) -> None:
        unwatched: dict[str, list[int]] = defaultdict(list)
        for one in loaded:
            if one.role == "registered" and one.key is not None:
                if one.workload.trigger_id in self._watched:
                    unwatched[str(one.key)].append(one.workload.trigger_id)
                    continue
                self.manager.register(trigger_ids=[one.workload.trigger_id], key=one.key)
                await yielder.checkpoint()
        for key, trigger_ids in unwatched.items():
            for at in range(0, len(trigger_ids), UNWATCH_BATCH_SIZE):
                batch = trigger_ids[at : at + UNWATCH_BATCH_SIZE]
                for trigger_id in batch:
                    del self._watches[key][trigger_id], self._watched[trigger_id]
                self.manager.register(trigger_ids=batch, key=key)
                await yielder.checkpoint()
        watched: dict[str, None] = {}
        for one in loaded:
            if one.watch is not None:
                key = str(one.key)
                watched[key] = None
                self._watches[key][one.workload.trigger_id] = one.watch
                self._watched[one.workload.trigger_id] = one.context
                await yielder.checkpoint()
        for key in watched:
            self._open(key)
            await self._index(key, yielder)
            self._watch(key)

    async def _index(self, key: str, yielder: CooperativeYield) -> None:
        """Build the index of a stream's watches with checkpoints: 20,000 watches take a quarter of a second."""
        watches = WatchSet({})
        for trigger_id, trigger in tuple(self._watches[key].items()):
            watches.add(trigger_id, trigger)
            await yielder.checkpoint()
        self.manager.prepare(watches=watches, key=key)

    def _open(self, key: Hashable) -> None:
        self._left_streams.pop(key, None)
        self._streams[key] = None

    def _begin(self, one: LoadedTrigger) -> None:
        trigger_id = one.workload.trigger_id
        if one.error is not None:
            self._loading[trigger_id] = asyncio.create_task(self._load_again(one, one.error), name=one.workload.name)
        elif one.execution is not None:
            if one.key is not None:
                self._open(one.key)
            lifecycle = self._lifecycles[trigger_id] = TriggerLifecycle(
                one.execution, self._subscribe, self._report_failure, self._heartbeat, self._processes
            )
            lifecycle.begin(one.workload.start_after)

    async def _load_again(self, one: LoadedTrigger, error: Exception) -> None:
        """Report a trigger that cannot be loaded, and try again as the API decides."""
        while True:
            decision = await self._report_failure(one.context, error)
            if decision.decision == "parked":
                return
            await asyncio.sleep(decision.retry_in)
            loaded = self._factory.load(one.workload)
            if loaded.error is None:
                break
            error = loaded.error
        # `stop` cancels this task until the trigger has started: nothing starts it after its release.
        await self.begin([loaded])
        self._loading.pop(one.workload.trigger_id, None)

    async def _leave(self, trigger_ids: Iterable[int]) -> None:
        """Remove triggers from their streams, in batches."""
        watches: dict[str, list[int]] = defaultdict(list)
        others: dict[Hashable, list[int]] = defaultdict(list)
        for trigger_id in trigger_ids:
            key = self._placements.remove(trigger_id)
            if isinstance(key, str) and self._watched.pop(trigger_id, None) is not None:
                del self._watches[key][trigger_id]
                watches[key].append(trigger_id)
            elif key is not None:
                others[key].append(trigger_id)
        left, yielder = self._placements.keys(), CooperativeYield()
        for key, left_watches in watches.items():
            for at in range(0, len(left_watches), UNWATCH_BATCH_SIZE):
                await self.manager.unwatch(trigger_ids=left_watches[at : at + UNWATCH_BATCH_SIZE], key=key)
                await yielder.checkpoint()
        for other in others.keys() & left:
            await self.manager.unregister(trigger_ids=others[other], key=other)

    def _subscribe(self, execution: TriggerExecution) -> None:
        """Subscribe a trigger. If that reopens its stream, the stream's watches owe answers from the first raw event on."""
        key = execution.key
        if isinstance(key, str) and (reopening := self._reopening.pop(key, None)) is not None:
            reopening.cancel()
            self._watch(key)
        execution.subscribe()

    def _mark_rejected(self, seq: int) -> None:
        self.manager.mark_rejected(seq)

    def _filter_failed(self, key: str, trigger_id: int, error: Exception) -> None:
        del key
        if (lifecycle := self._lifecycles.get(trigger_id)) is not None:
            lifecycle.fail(error)

    def _watch(self, key: str) -> None:
        if self._watches.get(key) and key not in self._reopening:
            try:
                self.manager.watch(triggers=self._watches[key], key=key)
            except StreamError as error:  # a trigger has opened a stream of this key without acks
                self._ended(key, tuple(self._watches[key]), error)

    def _ended(self, key: str, trigger_ids: Sequence[int], error: Exception) -> None:
        self._log.error("stream ended, reopening", stream=key, error=str(error), exc_info=error)
        self._reopening[key] = asyncio.create_task(self._reopen(key, tuple(trigger_ids), error), name=f"reopen {key}")

    async def _reopen(self, key: str, trigger_ids: Sequence[int], error: Exception) -> None:
        failed = [self._watched[trigger_id] for trigger_id in trigger_ids if trigger_id in self._watched]
        if not isinstance(error, StreamMoved):
            await asyncio.sleep(await self._report_stream_failure(key, failed, error))
        del self._reopening[key]
        self._watch(key)
