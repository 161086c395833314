"""Process the backlogs of watches, which have no filter to read them: each raw event is matched again.

Most are redriven dead letters. Others were spilled while the trigger was parked, or had a filter of its own.
Invariant: an entry is settled after its event or its dead letter is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import structlog

from headrace.core.dead_letter_ids import id_in_backlog
from headrace.core.values.text import MAX_TEXT_CHARS, cut_text
from headrace.ports.triggerer_api import TriggererApi
from headrace.streams.backlog import Answer, BacklogEntry
from headrace.streams.subscribers.backlog_reader import raw_event_of
from headrace.streams.watches import WatchSet
from headrace.triggerer.context import EventOrigin, trace_of_value
from headrace.triggerer.outbox.dead_letters import dead_letter
from headrace.triggerer.outbox.outbox import Item, Outbox, OutboxItem
from headrace.triggerer.outbox.sink import extract_event
from headrace.triggerer.runner.backlog import ApiBacklog
from headrace.triggerer.runner.backlog_decoder import BacklogDecoder
from headrace.triggers.base import stream_name
from headrace.triggers.masking import mask
from headrace.triggers.raw_event import message_id
from headrace.triggers.watch import WatchTrigger
from headrace.wire.custody.events import DeadLetterKind, EventItem

_PAGE = 200


class Redrive:
    """Processes backlogs of watches, with at most one task per trigger. `reopened` is called with the stream of a dead letter that may be
    open again.
    """

    def __init__(
        self,
        api: TriggererApi,
        outbox: Outbox,
        epoch: Callable[[int], int],
        decoder: BacklogDecoder,
        reopened: Callable[[str], None],
    ) -> None:
        self._api = api
        self._outbox = outbox
        self._epoch = epoch
        self._decoder = decoder
        self._reopened = reopened
        self._running: dict[int, asyncio.Task[None]] = {}
        self._log = structlog.get_logger(__name__)

    def start(self, trigger_id: int, trigger: WatchTrigger) -> None:
        """Process the backlog of a trigger, unless that is in progress."""
        if trigger_id not in self._running:
            task = self._running[trigger_id] = asyncio.create_task(self._drain(trigger_id, trigger), name=f"redrive {trigger_id}")
            task.add_done_callback(lambda done: self._finished(trigger_id, done))

    async def stop(self, trigger_ids: Iterable[int] | None = None) -> None:
        """Stop the tasks of these triggers, or all. Entries that are not settled stay in the backlog."""
        named = self._running.keys() if trigger_ids is None else self._running.keys() & set(trigger_ids)
        tasks = [self._running[one] for one in named]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _finished(self, trigger_id: int, task: asyncio.Task[None]) -> None:
        del self._running[trigger_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("redrive stopped", trigger=trigger_id, error=str(error))

    async def _drain(self, trigger_id: int, trigger: WatchTrigger) -> None:
        key = trigger.shared_stream_key()
        decode, reopened = partial(self._decoder.decode, key), partial(self._reopened, stream_name(key))
        backlog = ApiBacklog(self._api, trigger_id, self._epoch, decode, reopened)
        watches = WatchSet({trigger_id: trigger})
        after = 0
        while entries := await backlog.fetch(after, _PAGE):
            reasons: dict[int, str] = {}
            pending = [(entry.number, *self._answer(trigger_id, trigger, watches, entry, reasons)) for entry in entries]
            settled: list[tuple[int, Answer]] = []
            for number, answer, item in pending:
                if item is None:
                    settled.append((number, answer))
                elif item.stored is not None and await item.stored in {"stored", "duplicate"}:
                    settled.append((number, "dead_lettered" if item.is_replaced else answer))
            await backlog.settle(settled, reasons)
            after = entries[-1].number

    def _answer(
        self, trigger_id: int, trigger: WatchTrigger, watches: WatchSet, entry: BacklogEntry, reasons: dict[int, str]
    ) -> tuple[Answer, OutboxItem | None]:
        """Match one raw event of the backlog, and put the resulting event into the outbox. Return the answer, and the item that must be
        stored before. `reasons` gets the reason of one that is unusable.
        """
        raw = raw_event_of(entry)
        match = watches.match(raw, entry.lane, entry.position)
        if match.malformed is not None:
            return self._reject(trigger_id, entry, "malformed", match.malformed, reasons)
        if not match.groups:
            return "filtered", None
        origin = EventOrigin(entry.stream, entry.lane, entry.position, trace_of_value(match.raw, match.value))
        event = extract_event(trigger.envelope, match.value, match.raw.data, [trigger_id], origin, message_id=message_id(raw))
        if not isinstance(event, EventItem):
            return self._reject(trigger_id, entry, *event, reasons)
        return "fired", self._put(event)

    def _put(self, item: Item) -> OutboxItem:
        pending = OutboxItem(item, stored=asyncio.get_running_loop().create_future())
        self._outbox.put(pending)
        return pending

    def _reject(
        self, trigger_id: int, entry: BacklogEntry, kind: DeadLetterKind, reason: str, reasons: dict[int, str]
    ) -> tuple[Answer, OutboxItem | None]:
        """Return the answer for an unusable raw event, and the dead letter to store.

        A redriven one has a dead letter already, which opens again when the entry is settled.
        """
        reason = cut_text(mask(reason), MAX_TEXT_CHARS)
        described = {"trigger": trigger_id, "stream": entry.stream, "lane": entry.lane, "position": entry.position}
        if entry.redriven:
            self._log.warning("redriven dead letter failed again", **described, reason=reason)
            reasons[entry.number] = reason
            return "dead_lettered", None
        self._log.warning("raw event of the backlog rejected", **described, reason=reason)
        origin = _Spilled(entry.stream, entry.lane, entry.position, None if entry.position is not None else id_in_backlog(entry.number))
        return "dead_lettered", self._put(dead_letter(origin, kind, reason, entry.raw, [trigger_id], who=trigger_id))


class _Spilled(NamedTuple):
    """The origin of a spilled raw event, from which the id of its dead letter derives."""

    key: str
    lane: str
    position: int | None
    message_id: str | None
