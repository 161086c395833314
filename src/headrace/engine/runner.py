"""Run workloads: watches and filters on shared streams, other triggers alone; report what fails, and start it again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Self

import structlog

from headrace.engine.backoff import Backoff
from headrace.engine.firing import Firing
from headrace.engine.load_trigger import load_trigger
from headrace.engine.outbox import Outbox
from headrace.engine.sealer import Sealer
from headrace.errors import HeadraceError
from headrace.streams.hub import SharedStreamManager
from headrace.triggers.watch import WatchTrigger
from headrace.wire.triggers import RunTrigger

Failed = Callable[[int, BaseException], Awaitable[None]]
"""Is told which trigger failed, and with what."""

_LONG_LIFE = 60.0  # seconds; a stream that lived longer than this is opened again without the waits of earlier failures


class Runner:
    """The triggers that run in this process. Use it as `async with Runner(...)`; on exit every stream is stopped."""

    def __init__(self, outbox: Outbox, failed: Failed) -> None:
        self._outbox = outbox
        self._failed = failed
        self.hub = SharedStreamManager(sink=Sealer(outbox, self._mark_rejected, self._ended))
        self._watches: dict[str, dict[int, WatchTrigger]] = defaultdict(dict)
        self._watched: dict[int, str] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._opened: dict[str, float] = {}
        self._reopening: dict[str, asyncio.Task[None]] = {}
        self._backoffs: dict[str, Backoff] = defaultdict(lambda: Backoff(first=1.0, most=60.0))
        self._streams: dict[Hashable, None] = {}
        self._log = structlog.get_logger(__name__)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._reopening.values(), *self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.hub.stop_all()

    @property
    def streams(self) -> tuple[Hashable, ...]:
        """The keys of the streams that were ever open here."""
        return tuple(self._streams)

    async def start(self, workloads: Iterable[RunTrigger]) -> None:
        """Start these triggers. One that cannot be loaded is reported as failed; the others go on."""
        keys: set[str] = set()
        firings: list[tuple[RunTrigger, Firing]] = []
        for workload in workloads:
            try:
                trigger = load_trigger(workload)
            except HeadraceError as error:
                await self._failed(workload.trigger_id, error)
                continue
            if isinstance(trigger, WatchTrigger):
                key = self._watched[workload.trigger_id] = trigger.shared_stream_key()
                self._watches[key][workload.trigger_id] = trigger
                keys.add(key)
            else:
                firings.append((workload, Firing(workload, trigger, self.hub, self._outbox)))
        # No await from here on: a poll begins only once the loop runs again, so every trigger of a stream gets its first event.
        for key in keys:
            self._streams[key] = None
            self._watch(key)
        for workload, firing in firings:
            if firing.key is not None:
                self._streams[firing.key] = None
            firing.subscribe()
            self._tasks[workload.trigger_id] = asyncio.create_task(self._keep(workload, firing), name=f"trigger {workload.name}")

    async def stop(self, trigger_ids: Iterable[int]) -> None:
        """Stop these triggers here; what they owe stays with the broker."""
        for trigger_id in trigger_ids:
            if (task := self._tasks.pop(trigger_id, None)) is not None:
                task.cancel()
                await asyncio.wait({task})
            elif (key := self._watched.pop(trigger_id, None)) is not None:
                self._watches[key].pop(trigger_id, None)
                await self.hub.unsubscribe(trigger_id, key)

    def _mark_rejected(self, seq: int) -> None:
        self.hub.mark_rejected(seq)

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

    async def _keep(self, workload: RunTrigger, firing: Firing) -> None:
        """Run one trigger, and again after a failure; a trigger that returns is done."""
        backoff = Backoff(first=1.0, most=60.0)
        try:
            while True:
                try:
                    await firing.run()
                except Exception as error:  # a user's trigger may raise anything: it is reported, not swallowed
                    await self._failed(workload.trigger_id, error)
                else:
                    self._log.info("trigger is done", trigger=workload.name)
                    return
                await asyncio.sleep(backoff.next())
        finally:
            await firing.cleanup()
