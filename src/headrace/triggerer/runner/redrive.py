"""Declared triggers have no filter that drains: what is put into their backlog (a redriven dead letter) is asked of their watch again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from headrace.core.tracing import traceparent_in
from headrace.ports.triggerer_api import TriggererApi
from headrace.streams.backlog import Answer, BacklogEntry
from headrace.streams.watches import WatchSet
from headrace.triggerer.context import EventOrigin
from headrace.triggerer.outbox.outbox import Outbox, OutboxItem
from headrace.triggerer.outbox.sink import seal
from headrace.triggerer.runner.backlog import ApiBacklog
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.watch import WatchTrigger
from headrace.wire.custody.events import EventItem, ReceiptStatus

_PAGE = 200


class Redrive:
    """Drains the backlogs of declared triggers, one run for each trigger at a time."""

    def __init__(self, api: TriggererApi, outbox: Outbox, epoch: Callable[[int], int]) -> None:
        self._api = api
        self._outbox = outbox
        self._epoch = epoch
        self._running: dict[int, asyncio.Task[None]] = {}
        self._log = structlog.get_logger(__name__)

    def start(self, trigger_id: int, trigger: WatchTrigger) -> None:
        """Drain what is kept for a trigger, unless that is being done."""
        if trigger_id not in self._running:
            task = self._running[trigger_id] = asyncio.create_task(self._drain(trigger_id, trigger), name=f"redrive {trigger_id}")
            task.add_done_callback(lambda done: self._finished(trigger_id, done))

    async def stop(self) -> None:
        """Stop; what is not settled stays kept."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _finished(self, trigger_id: int, task: asyncio.Task[None]) -> None:
        del self._running[trigger_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("redrive stopped", trigger=trigger_id, error=str(error))

    async def _drain(self, trigger_id: int, trigger: WatchTrigger) -> None:
        backlog = ApiBacklog(self._api, trigger_id, self._epoch)
        watches = WatchSet({trigger_id: trigger})
        after = 0
        while entries := await backlog.fetch(after, _PAGE):
            pending = [(entry, *self._answer(trigger_id, trigger, watches, entry)) for entry in entries]
            settled: list[tuple[int, Answer]] = []
            for entry, answer, stored in pending:
                if stored is None or await stored in {"stored", "duplicate"}:
                    settled.append((entry.number, answer))
            await backlog.settle(settled)
            after = entries[-1].number

    def _answer(
        self, trigger_id: int, trigger: WatchTrigger, watches: WatchSet, entry: BacklogEntry
    ) -> tuple[Answer, asyncio.Future[ReceiptStatus] | None]:
        """Decide about one kept raw event; what has to be stored for it is under way when this returns."""
        key, raw = trigger.shared_stream_key(), RawEvent(entry.raw.encode(), entry.lane, entry.position or 0)
        wanted = watches.wants(raw, entry.lane, entry.position)
        if wanted.malformed is not None:
            return self._again(trigger_id, entry, wanted.malformed)
        if not wanted.groups:
            return "filtered", None
        place = EventOrigin(key, entry.lane, entry.position, traceparent_in(wanted.value))
        sealed = seal(trigger.envelope, wanted.value, raw.data, [trigger_id], place)
        if not isinstance(sealed, EventItem):
            return self._again(trigger_id, entry, sealed[1])
        stored = asyncio.get_running_loop().create_future()
        self._outbox.put(OutboxItem(sealed, stored=stored))
        return "fired", stored

    def _again(self, trigger_id: int, entry: BacklogEntry, reason: str) -> tuple[Answer, None]:
        """It is still no good: its dead letter opens again when this is settled."""
        self._log.warning("redriven dead letter failed again", trigger=trigger_id, lane=entry.lane, position=entry.position, reason=reason)
        return "dead_lettered", None
