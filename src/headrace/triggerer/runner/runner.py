"""Run workloads: watches and filters on shared streams, other triggers alone; report what fails, and start it again."""

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
from headrace.streams.upstream.producer_factory import StreamOpener
from headrace.streams.watches import WatchSet
from headrace.triggerer.context import TriggerContext
from headrace.triggerer.cooperative_yield import CooperativeYield
from headrace.triggerer.gc_freeze import made_to_stay
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.outbox.receipt_recorder import ApiReceiptRecorder
from headrace.triggerer.outbox.sink import OutboxSink
from headrace.triggerer.process_pools.producer_factory import ProducerFactory
from headrace.triggerer.process_pools.producer_pool import ProducerProcesses
from headrace.triggerer.process_pools.trigger_pool import TriggerProcesses
from headrace.triggerer.runner.backlog import ApiBacklog
from headrace.triggerer.runner.execution import TriggerExecution
from headrace.triggerer.runner.leases import Leases
from headrace.triggerer.runner.lifecycle import Failed, StreamFailed, TriggerLifecycle
from headrace.triggerer.runner.redrive import Redrive
from headrace.triggerer.side_by_side import cancel_all, run_together
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.user_process.loader import load_trigger, trigger_class
from headrace.triggers.base import BaseEventTrigger, stream_name
from headrace.triggers.project_paths import resolve_each_path_once
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.jobs import Blocked
from headrace.wire.control.triggers import RunTrigger

STOP_SECONDS: Final = 15.0
"""In so many seconds triggers stop, however many; what takes longer is left behind."""

OVERFLOW_WAIT_SECONDS: Final = 0.02
"""For so long a stream waits for a trigger process that still reads quickly, before what it cannot take is spilled."""

GONE_SECONDS: Final = 60.0
"""For so long the last counts of a stream are reported whose last trigger has left."""

MAX_LEAVING: Final = 1000
"""So many watches of a stream that lives leave it in one turn of the loop."""

MAX_GONE_STREAMS: Final = 1000
"""Counts of so many of these streams are kept: one that comes back goes on counting, as its job's totals must not shrink."""


@dataclass(frozen=True, slots=True)
class Limits:
    """In how many seconds a trigger must answer a raw event, an upstream must be advanced, and a trigger process must turn its loop.

    `retry_wait`: the longest seconds before the last attempt at a raw event that a trigger fails on.
    """

    ack_timeout: float = 300.0
    advance_timeout: float = 60.0
    retry_wait: float = 250.0
    patience: WatchdogPolicy = field(default_factory=WatchdogPolicy)


class Runner:
    """The triggers that run in this process. Use it as `async with Runner(...)`; on exit every stream is stopped.

    All triggers of a stream come and go together. Those that are written in Python are registered before anything is read, so that what
    one of them cannot take, also while it fails and starts again or is parked, is kept for it.
    """

    def __init__(
        self,
        api: TriggererApi,
        leases: Leases,
        outbox: Outbox,
        failed: Failed,
        stream_failed: StreamFailed,
        limits: Limits,
        processes: TriggerProcesses,
        producers: ProducerProcesses,
        pulse: SharedHeartbeat | None = None,
    ) -> None:
        self._api = api
        self._leases = leases
        self._outbox = outbox
        self._failed = failed
        self._stream_failed = stream_failed
        self._processes = processes
        self._producers = producers
        self._pulse = pulse or SharedHeartbeat()
        sink = OutboxSink(outbox, self._mark_rejected, self._ended, self._filter_failed)
        self.hub = SharedStreamManager(
            sink=sink,
            overflow="spill",
            recorder=ApiReceiptRecorder(api, outbox),
            ack_timeout=limits.ack_timeout,
            advance_timeout=limits.advance_timeout,
            retry_wait=limits.retry_wait,
            budget=outbox.budget,
            overflow_wait=OVERFLOW_WAIT_SECONDS,
            make_producer=ProducerFactory(processes, producers, outbox.budget).make,
        )
        self._redrive = Redrive(api, outbox, leases.epoch)
        self._watches: dict[str, dict[int, WatchTrigger]] = defaultdict(dict)
        self._watched: dict[int, TriggerContext] = {}
        self._keys: dict[int, Hashable] = {}
        self._keepers: dict[int, TriggerLifecycle] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._streams: dict[Hashable, None] = {}
        self._gone: dict[Hashable, float] = {}
        self._reopening: dict[str, asyncio.Task[None]] = {}
        self._log = structlog.get_logger(__name__)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._redrive.stop()
        await cancel_all([*self._reopening.values(), *self._loading.values()])
        for keeper in self._keepers.values():
            keeper.end()
        # The streams first, as in `stop`.
        await self.hub.stop_all()
        until = asyncio.get_running_loop().time() + STOP_SECONDS
        await run_together(keeper.stop(until=until) for keeper in self._keepers.values())
        await self._processes.close()
        await self._producers.close()

    @property
    def blocked(self) -> Blocked | None:
        """The trigger or the producer that blocks its process now, for the longest time."""
        found = [blocked for blocked in (self._processes.blocked, self._producers.blocked) if blocked is not None]
        return max(found, key=lambda one: one.seconds, default=None)

    @property
    def streams(self) -> tuple[Hashable, ...]:
        """The keys of the streams that triggers are here for, and of those whose last trigger has left a short time ago."""
        recent = asyncio.get_running_loop().time() - GONE_SECONDS
        return (*self._streams, *(key for key, when in self._gone.items() if when > recent))

    async def start(self, workloads: Iterable[RunTrigger]) -> None:
        """Start these triggers. One that cannot be loaded is reported as failed, and what is for it is kept; the others go on."""
        given = list(workloads)
        with made_to_stay(len(given)), resolve_each_path_once():
            await self._start(given)

    async def _start(self, workloads: Sequence[RunTrigger]) -> None:
        stretch = CooperativeYield()
        made: list[_LoadedTrigger] = []
        for workload in workloads:
            made.append(self._made(workload))
            await stretch.rest()
        await self._name_keys(made, stretch)
        keys = {one.key for one in made if one.key is not None}
        # Nothing is read until all of them have taken their places: every trigger of a stream gets its first event.
        for key in keys:
            self.hub.hold(key)
        try:
            await self._register(made, stretch)
            for one in made:
                self._begin(one)
                await stretch.rest()
            await self._processes.ready()
        finally:
            for key in keys:
                self.hub.release(key)

    async def stop(self, trigger_ids: Iterable[int], *, again: Iterable[int] = (), dropped: Sequence[int] = ()) -> None:
        """Stop these triggers here; those that are to start `again` at once stay registered, so that nothing passes them by.

        What a stream owes when the last of its triggers stops stays with the broker. On those that are `dropped` nothing waits any more.
        """
        stopping = list(trigger_ids)
        gone = set(stopping) - set(again)
        left = {key for one, key in self._keys.items() if one not in gone}
        ended = {self._keys[one] for one in gone if one in self._keys}
        await cancel_all([self._loading.pop(one) for one in stopping if one in self._loading])
        keepers = {one: self._keepers.pop(one) for one in stopping if one in self._keepers}
        await self._end_streams(ended - left, [keepers[one] for one in keepers if self._keys.get(one) not in left])
        until = asyncio.get_running_loop().time() + STOP_SECONDS
        await run_together([keeper.stop(until=until, dropped=one in dropped) for one, keeper in keepers.items()])
        await self._leave(gone)
        for key in ended & left:
            self.hub.release(key)
        for key in ended - left:
            self._forget_stream(key)

    def _forget_stream(self, key: Hashable) -> None:
        """Keep nothing of a stream whose last trigger has left, but what is still to be reported."""
        if key in self._streams:
            del self._streams[key]
            self._gone[key] = asyncio.get_running_loop().time()
            while len(self._gone) > MAX_GONE_STREAMS:
                oldest = next(iter(self._gone))
                del self._gone[oldest]
                self.hub.forget(oldest)
        if isinstance(key, str):
            self._watches.pop(key, None)

    async def _end_streams(self, keys: Collection[Hashable], keepers: Iterable[TriggerLifecycle]) -> None:
        """End streams that are handed over, before any of their triggers leaves.

        Of one that lives, whoever leaves owes nothing any more: the last to leave would answer for all, and what the others have not
        had would be advanced, which the next owner never sees.
        """
        for keeper in keepers:
            keeper.end()
        await cancel_all([self._reopening.pop(key) for key in [*self._reopening] if key in keys])
        await run_together([self.hub.stop(key) for key in keys])

    async def quiesce(self, trigger_ids: Iterable[int] | None = None) -> None:
        """Read no more on the streams of these triggers (None: on all), and return when everything that was read is advanced."""
        keys = set(self._keys.values()) if trigger_ids is None else {self._keys[one] for one in trigger_ids if one in self._keys}
        await run_together(self.hub.quiesce(key) for key in keys)

    def drain(self, backlogs: Mapping[int, int]) -> None:
        """Make triggers read backlogs that the API reports as not empty, such as after a redrive."""
        for trigger_id in backlogs:
            key = self._keys.get(trigger_id)
            if key is None:
                continue
            watch = self._watches[key].get(trigger_id) if isinstance(key, str) and key in self._watches else None
            if watch is not None:
                self._redrive.start(trigger_id, watch)
            else:
                self.hub.drain(trigger_id=trigger_id, key=key)

    def _made(self, workload: RunTrigger) -> _LoadedTrigger:
        """Load one trigger: its watch, or the class of what a trigger process is to make, or what it cannot be loaded for."""
        if workload.parked:
            self._log.warning("trigger is parked: it is not started, what is for it is kept", trigger=workload.name)
            return _LoadedTrigger(workload)
        try:
            with self._pulse.at(workload.trigger_id):
                kind = trigger_class(workload)
                if issubclass(kind, WatchTrigger) and isinstance(trigger := load_trigger(workload), WatchTrigger):
                    return _LoadedTrigger(workload, trigger.shared_stream_key(), watch=trigger)
        except Exception as error:  # a user's module may raise anything: it is reported, and what is for it is kept
            return _LoadedTrigger(workload, error=error)
        described = workload.model_dump_json().encode()
        opener = None
        if workload.stream is not None and issubclass(kind, BaseEventTrigger):
            opener = StreamOpener(kind, workload.kwargs, described)
        key = None if opener is None else workload.stream
        backlog = ApiBacklog(self._api, workload.trigger_id, self._leases.epoch)
        run_id = workload.run_id
        firing = TriggerExecution(_running(workload), described, opener, self.hub, self._outbox, backlog, key=key, run_id=run_id)
        return _LoadedTrigger(workload, key, firing=firing)

    async def _name_keys(self, made: Sequence[_LoadedTrigger], stretch: CooperativeYield) -> None:
        """Give those that are not loaded the key of the others of their stream."""
        named = {stream_name(key): key for key in {*(one.key for one in made if one.key is not None), *self._keys.values()}}
        for one in made:
            await stretch.rest()
            if one.key is None:
                one.key = named.get(one.workload.stream or "")
            if one.key is not None:
                self._keys[one.workload.trigger_id] = one.key

    async def _register(self, made: Sequence[_LoadedTrigger], stretch: CooperativeYield) -> None:
        for one in made:
            if one.watch is None and one.key is not None and (one.firing is None or one.firing.acks):
                self.hub.register(trigger_ids=[one.workload.trigger_id], key=one.key)
                await stretch.rest()
        watched: dict[str, None] = {}
        for one in made:
            if one.watch is not None:
                key = str(one.key)
                watched[key] = None
                self._watches[key][one.workload.trigger_id] = one.watch
                self._watched[one.workload.trigger_id] = _running(one.workload)
                await stretch.rest()
        for key in watched:
            self._open(key)
            await self._index(key, stretch)
            self._watch(key)

    async def _index(self, key: str, stretch: CooperativeYield) -> None:
        """Make the index of a stream's watches in slices: that of 20,000 takes a quarter of a second."""
        watches = WatchSet({})
        for trigger_id, trigger in tuple(self._watches[key].items()):
            watches.add(trigger_id, trigger)
            await stretch.rest()
        self.hub.prepare(watches=watches, key=key)

    def _open(self, key: Hashable) -> None:
        self._gone.pop(key, None)
        self._streams[key] = None

    def _begin(self, one: _LoadedTrigger) -> None:
        trigger_id = one.workload.trigger_id
        if one.error is not None:
            self._loading[trigger_id] = asyncio.create_task(self._load_again(one.workload, one.error), name=one.workload.name)
        elif one.firing is not None:
            if one.key is not None:
                self._open(one.key)
            keeper = self._keepers[trigger_id] = TriggerLifecycle(one.firing, self._subscribe, self._failed, self._pulse, self._processes)
            keeper.begin(one.workload.start_after)

    async def _load_again(self, workload: RunTrigger, error: Exception) -> None:
        """Report a trigger that cannot be loaded, and try again as often as the api says."""
        while True:
            verdict = await self._failed(_running(workload), error)
            if verdict.verdict == "parked":
                return
            await asyncio.sleep(verdict.retry_in)
            made = self._made(workload)
            if made.error is None:
                break
            error = made.error
        del self._loading[workload.trigger_id]
        await self.start([workload])

    async def _leave(self, trigger_ids: Iterable[int]) -> None:
        """Remove triggers from their streams, many of one stream at once."""
        watches: dict[str, list[int]] = defaultdict(list)
        others: dict[Hashable, list[int]] = defaultdict(list)
        for trigger_id in trigger_ids:
            key = self._keys.pop(trigger_id, None)
            if isinstance(key, str) and self._watched.pop(trigger_id, None) is not None:
                del self._watches[key][trigger_id]
                watches[key].append(trigger_id)
            elif key is not None:
                others[key].append(trigger_id)
        left, stretch = set(self._keys.values()), CooperativeYield()
        for key, gone in watches.items():
            for at in range(0, len(gone), MAX_LEAVING):
                await self.hub.unwatch(trigger_ids=gone[at : at + MAX_LEAVING], key=key)
                await stretch.rest()
        for other in others.keys() & left:
            await self.hub.unregister(trigger_ids=others[other], key=other)

    def _subscribe(self, firing: TriggerExecution) -> None:
        """Subscribe a trigger. If that opens its stream again, declared triggers owe answers from the first raw event on too."""
        key = firing.key
        if isinstance(key, str) and (reopening := self._reopening.pop(key, None)) is not None:
            reopening.cancel()
            self._watch(key)
        firing.subscribe()

    def _mark_rejected(self, seq: int) -> None:
        self.hub.mark_rejected(seq)

    def _filter_failed(self, key: str, trigger_id: int, error: Exception) -> None:
        del key
        if (keeper := self._keepers.get(trigger_id)) is not None:
            keeper.fail(error)

    def _watch(self, key: str) -> None:
        if self._watches.get(key) and key not in self._reopening:
            try:
                self.hub.watch(triggers=self._watches[key], key=key)
            except StreamError as error:  # a trigger has opened a stream of this key that has no acks
                self._ended(key, tuple(self._watches[key]), error)

    def _ended(self, key: str, trigger_ids: Sequence[int], error: Exception) -> None:
        self._log.error("stream ended, opening it again", stream=key, error=str(error), exc_info=error)
        self._reopening[key] = asyncio.create_task(self._reopen(key, tuple(trigger_ids), error), name=f"reopen {key}")

    async def _reopen(self, key: str, trigger_ids: Sequence[int], error: Exception) -> None:
        failed = [self._watched[trigger_id] for trigger_id in trigger_ids if trigger_id in self._watched]
        if not isinstance(error, StreamMoved):
            await asyncio.sleep(await self._stream_failed(key, failed, error))
        del self._reopening[key]
        self._watch(key)


@dataclass(slots=True)
class _LoadedTrigger:
    """A workload that was loaded: a watch, a filter, or neither (it is parked, or cannot be loaded)."""

    workload: RunTrigger
    key: Hashable | None = None
    watch: WatchTrigger | None = None
    firing: TriggerExecution | None = None
    error: Exception | None = None


def _running(workload: RunTrigger) -> TriggerContext:
    return TriggerContext(workload.trigger_id, workload.name, workload.log_name)
