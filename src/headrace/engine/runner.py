"""Run workloads: watches and filters on shared streams, other triggers alone; report what fails, and start it again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import structlog

from headrace.engine.backlog import ApiBacklog
from headrace.engine.backoff import Backoff
from headrace.engine.firing import Firing
from headrace.engine.keeper import Keeper
from headrace.engine.leases import Leases
from headrace.engine.load_trigger import load_trigger
from headrace.engine.outbox import Outbox
from headrace.engine.recorder import ApiRecorder
from headrace.engine.redrive import Redrive
from headrace.engine.sealer import Sealer
from headrace.ports.control_plane import TriggererControl
from headrace.streams.hub import SharedStreamManager
from headrace.triggers.base import BaseTrigger, stream_name
from headrace.triggers.watch import WatchTrigger
from headrace.wire.triggers import RunTrigger

Failed = Callable[[int, BaseException], Awaitable[None]]
"""Is told which trigger failed, and with what."""

_LONG_LIFE = 60.0  # seconds; a stream that lived longer than this is opened again without the waits of earlier failures


@dataclass(frozen=True, slots=True)
class Limits:
    """In how many seconds a trigger must answer a raw event, and an upstream must be advanced."""

    ack_timeout: float = 300.0
    advance_timeout: float = 60.0


class Runner:
    """The triggers that run in this process. Use it as `async with Runner(...)`; on exit every stream is stopped.

    All triggers of a stream come and go together. Those that are written in Python are registered before anything is read, so that what
    one of them cannot take, also while it fails and starts again, is kept for it.
    """

    def __init__(self, api: TriggererControl, leases: Leases, outbox: Outbox, failed: Failed, limits: Limits) -> None:
        self._api = api
        self._leases = leases
        self._outbox = outbox
        self._failed = failed
        sink = Sealer(outbox, self._mark_rejected, self._ended, self._filter_failed)
        self.hub = SharedStreamManager(
            sink=sink,
            overflow="spill",
            recorder=ApiRecorder(api, outbox),
            ack_timeout=limits.ack_timeout,
            advance_timeout=limits.advance_timeout,
        )
        self._redrive = Redrive(api, outbox, leases.epoch)
        self._watches: dict[str, dict[int, WatchTrigger]] = defaultdict(dict)
        self._keys: dict[int, Hashable] = {}
        self._keepers: dict[int, Keeper] = {}
        self._streams: dict[Hashable, None] = {}
        self._opened: dict[str, float] = {}
        self._reopening: dict[str, asyncio.Task[None]] = {}
        self._backoffs: dict[str, Backoff] = defaultdict(lambda: Backoff(first=1.0, most=60.0))
        self._log = structlog.get_logger(__name__)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._redrive.stop()
        for task in self._reopening.values():
            task.cancel()
        if self._reopening:
            await asyncio.wait(self._reopening.values())
        for keeper in self._keepers.values():
            keeper.cancel()
        await self.hub.stop_all()
        for keeper in self._keepers.values():
            await keeper.stopped()

    @property
    def streams(self) -> tuple[Hashable, ...]:
        """The keys of the streams that were ever open here."""
        return tuple(self._streams)

    async def start(self, workloads: Iterable[RunTrigger]) -> None:
        """Start these triggers. One that cannot be loaded is reported as failed, and what is for it is kept; the others go on."""
        keys: set[str] = set()
        firings: list[tuple[RunTrigger, Firing]] = []
        unloadable: list[RunTrigger] = []
        for workload in workloads:
            try:
                trigger = load_trigger(workload)
                firing = None if isinstance(trigger, WatchTrigger) else self._firing(workload, trigger)
            except Exception as error:  # a user's trigger may raise anything: it is reported, and what is for it is kept
                unloadable.append(workload)
                await self._failed(workload.trigger_id, error)
                continue
            if isinstance(trigger, WatchTrigger):
                key = trigger.shared_stream_key()
                self._keys[workload.trigger_id] = key
                self._watches[key][workload.trigger_id] = trigger
                keys.add(key)
            elif firing is not None:
                if firing.key is not None:
                    self._keys[workload.trigger_id] = firing.key
                firings.append((workload, firing))
        # No await from here on: a poll begins only once the loop runs again, so every trigger of a stream gets its first event.
        self._register([firing for _, firing in firings], unloadable)
        for key in keys:
            self._streams[key] = None
            self._watch(key)
        for workload, firing in firings:
            if firing.key is not None:
                self._streams[firing.key] = None
            self._keepers[workload.trigger_id] = Keeper(workload, firing, partial(self._subscribe, firing), self._failed)

    async def stop(self, trigger_ids: Iterable[int], *, again: Iterable[int] = ()) -> None:
        """Stop these triggers here; those that are to start `again` at once stay registered, so that nothing passes them by.

        What a stream owes when the last of its triggers stops stays with the broker.
        """
        gone = set(trigger_ids) - set(again)
        stopping = [self._keepers.pop(one) for one in trigger_ids if one in self._keepers]
        for keeper in stopping:
            keeper.cancel()
        for keeper in stopping:
            await keeper.stopped()
        ended = {self._keys[one] for one in gone if one in self._keys}
        for trigger_id in gone:
            await self._leave(trigger_id)
        for key in ended - set(self._keys.values()):
            await self.hub.stop(key)

    def drain(self, backlogs: Mapping[int, int]) -> None:
        """Let triggers look into backlogs that the api says are not empty: a dead letter may have been redriven."""
        for trigger_id in backlogs:
            key = self._keys.get(trigger_id)
            if key is None:
                continue
            watch = self._watches[str(key)].get(trigger_id) if isinstance(key, str) else None
            if watch is not None:
                self._redrive.start(trigger_id, watch)
            else:
                self.hub.drain(trigger_id=trigger_id, key=key)

    def _firing(self, workload: RunTrigger, trigger: BaseTrigger) -> Firing:
        return Firing(workload, trigger, self.hub, self._outbox, ApiBacklog(self._api, workload.trigger_id, self._leases.epoch))

    def _register(self, firings: Sequence[Firing], unloadable: Sequence[RunTrigger]) -> None:
        registered: dict[Hashable, list[int]] = defaultdict(list)
        for firing in firings:
            if firing.key is not None:
                registered[firing.key].append(firing.trigger_id)
        named = {stream_name(key): key for key in [*registered, *self._keys.values()]}
        for workload in unloadable:
            if (key := named.get(workload.stream or "")) is not None:
                self._keys[workload.trigger_id] = key
                registered[key].append(workload.trigger_id)
        for key, trigger_ids in registered.items():
            self.hub.register(trigger_ids=trigger_ids, key=key)

    async def _leave(self, trigger_id: int) -> None:
        key = self._keys.pop(trigger_id, None)
        if key is None:
            return
        if isinstance(key, str) and self._watches[key].pop(trigger_id, None) is not None:
            await self.hub.unsubscribe(trigger_id, key)
        elif key in self._keys.values():
            await self.hub.unregister(trigger_ids=[trigger_id], key=key)

    def _subscribe(self, firing: Firing) -> None:
        """Let a trigger subscribe. Where that opens its stream again, the declared ones owe what comes from the first raw event on too."""
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
        if self._watches[key] and key not in self._reopening:
            self._opened[key] = asyncio.get_running_loop().time()
            self.hub.watch(triggers=self._watches[key], key=key)

    def _ended(self, key: str, trigger_ids: Sequence[int], error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._opened.get(key, now) > _LONG_LIFE:
            self._backoffs[key].reset()
        wait = self._backoffs[key].next()
        self._log.error("stream ended, opening it again", stream=key, error=str(error), retry_in=round(wait, 1))
        self._reopening[key] = asyncio.create_task(self._reopen(key, tuple(trigger_ids), error, wait), name=f"reopen {key}")

    async def _reopen(self, key: str, trigger_ids: Sequence[int], error: Exception, wait: float) -> None:
        for trigger_id in trigger_ids:
            await self._failed(trigger_id, error)
        await asyncio.sleep(wait)
        del self._reopening[key]
        self._watch(key)
