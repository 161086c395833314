"""Process the backlogs of watches, which have no filter to read them: each raw event (a redriven dead letter) is matched again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from headrace.ports.triggerer_api import TriggererApi
from headrace.streams.backlog import Answer, BacklogEntry
from headrace.streams.subscribers.raw_text import raw_event_from
from headrace.streams.watches import WatchSet
from headrace.triggerer.context import EventOrigin, trace_of_value
from headrace.triggerer.outbox.outbox import Outbox, OutboxItem
from headrace.triggerer.outbox.sink import extract_event
from headrace.triggerer.runner.backlog import ApiBacklog
from headrace.triggers.base import stream_name
from headrace.triggers.raw_event import message_id
from headrace.triggers.watch import WatchTrigger
from headrace.wire.custody.events import EventItem, ReceiptStatus

_PAGE = 200


class Redrive:
    """Processes backlogs of watches, with at most one task per trigger. `reopened` is called with the stream of a dead letter that may be
    open again.
    """

    def __init__(self, api: TriggererApi, outbox: Outbox, epoch: Callable[[int], int], reopened: Callable[[str], None]) -> None:
        self._api = api
        self._outbox = outbox
        self._epoch = epoch
        self._reopened = reopened
        self._running: dict[int, asyncio.Task[None]] = {}
        self._log = structlog.get_logger(__name__)

    def start(self, trigger_id: int, trigger: WatchTrigger) -> None:
        """Process the backlog of a trigger, unless that is in progress."""
        if trigger_id not in self._running:
            task = self._running[trigger_id] = asyncio.create_task(self._drain(trigger_id, trigger), name=f"redrive {trigger_id}")
            task.add_done_callback(lambda done: self._finished(trigger_id, done))

    async def stop(self) -> None:
        """Stop. Entries that are not settled stay in the backlog."""
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
        backlog = ApiBacklog(self._api, trigger_id, self._epoch, partial(self._reopened, stream_name(trigger.shared_stream_key())))
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
        """Match one raw event of the backlog, and put the resulting event into the outbox. Return the answer, and the
        future of its storage.
        """
        key, raw = trigger.shared_stream_key(), raw_event_from(entry.raw, entry.lane, entry.position)
        match = watches.match(raw, entry.lane, entry.position)
        if match.malformed is not None:
            return self._reject_again(trigger_id, entry, match.malformed)
        if not match.groups:
            return "filtered", None
        origin = EventOrigin(key, entry.lane, entry.position, trace_of_value(raw, match.value))
        event = extract_event(trigger.envelope, match.value, raw.data, [trigger_id], origin, message_id=message_id(raw))
        if not isinstance(event, EventItem):
            return self._reject_again(trigger_id, entry, event[1])
        stored = asyncio.get_running_loop().create_future()
        self._outbox.put(OutboxItem(event, stored=stored))
        return "fired", stored

    def _reject_again(self, trigger_id: int, entry: BacklogEntry, reason: str) -> tuple[Answer, None]:
        """Return the answer for a raw event that is still unusable. Its dead letter opens again when the entry is settled."""
        self._log.warning("redriven dead letter failed again", trigger=trigger_id, lane=entry.lane, position=entry.position, reason=reason)
        return "dead_lettered", None
