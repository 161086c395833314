"""The registered readers of one shared stream: what they cannot take, refuse or fail on goes to the sink, to be kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

import structlog

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import PendingBacklogEvent, PendingEvent, Spill, Subscriber
from headrace.core.values.text import describe_error, describe_traceback
from headrace.errors import MalformedEvent, StreamError
from headrace.streams.delivery_names import DeliveryIds
from headrace.streams.limits.policy import StreamPolicy
from headrace.streams.sink import Malformed, Poisoned, RejectedEvent, Spilled, StreamSink
from headrace.streams.subscribers.failure_counter import Failed, FailureCounter, Retry, retry_wait, text_of
from headrace.streams.subscribers.raw_text import to_text
from headrace.streams.watches import printed
from headrace.triggers.masking import mask

log = structlog.get_logger(__name__)

_MAX_ENTRIES = 100  # of a traceback
_TIMER_SLACK: Final = 0.01
"""Seconds by which a timer is later than what it is for, so that this is due then by any clock."""


class RegisteredSubscribers:
    """Those who owe their answers whether they run or not. `wake` lets one, if it waits, look into its backlog again."""

    def __init__(
        self, stream: str, ledger: Ledger, sink: StreamSink, delivery_ids: DeliveryIds, policy: StreamPolicy, wake: Callable[[int], None]
    ) -> None:
        self._stream = stream
        self._ledger = ledger
        self._sink = sink
        self._delivery_ids = delivery_ids
        self._policy = policy
        self._wake = wake
        self._chance = Random()  # noqa: S311 - it spreads retries, and is no secret
        self._readers: dict[int, Subscriber] = {}
        self._troubles: dict[int, FailureCounter] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, trigger_id: int) -> bool:
        return trigger_id in self._readers

    def add(self, trigger_id: int, trouble: FailureCounter) -> None:
        """Register a trigger, which is away until it subscribes."""
        reader = self._readers[trigger_id] = self._ledger.register(trigger_id)
        reader.retries = trouble.retries
        self._troubles[trigger_id] = trouble
        self._set_timer(trigger_id)

    def drop(self, trigger_id: int) -> None:
        """Remove a trigger with all that it owes."""
        self._ledger.drop(self._readers.pop(trigger_id))
        del self._troubles[trigger_id]
        self._cancel_timer(trigger_id)

    def close(self) -> None:
        """Wake no reader any more: the stream has ended."""
        for trigger_id in tuple(self._timers):
            self._cancel_timer(trigger_id)

    def retries(self) -> list[tuple[int, Retry]]:
        """Return what waits to be tried again, with the id of the trigger that failed on it."""
        return [(trigger_id, retry) for trigger_id, trouble in self._troubles.items() for retry in trouble.retries.values()]

    def reader(self, trigger_id: int) -> Subscriber:
        """Return the reader of a registered trigger."""
        return self._readers[trigger_id]

    def trouble(self, trigger_id: int) -> FailureCounter:
        """Return what a registered trigger failed on."""
        return self._troubles[trigger_id]

    def spill(self, readers: Iterable[Subscriber], *, stop: bool) -> None:
        """Mark triggers as away and spill all that they owe. With `stop`, they do not finish their raw events."""
        for spill in self._ledger.spill(readers, stop=stop):
            self.hand_over(spill)

    def hand_over(self, spill: Spill) -> None:
        """Give the sink the raw events for backlogs. What cannot be text becomes a dead letter."""
        seq, entry, readers = spill
        who = tuple([reader.trigger_id for reader in readers])
        lane = entry.lane.name
        try:
            text = to_text(entry.raw)
        except MalformedEvent as error:
            raw = printed(entry.raw, lane, entry.position)
            self._ledger.mark_rejected(seq)
            self._sink.malformed(Malformed(seq, self._stream, lane, entry.position, raw, str(error), who, self._delivery_ids.of(entry)))
        else:
            self._sink.spilled(Spilled(seq, self._stream, lane, entry.position, text, who, self._delivery_ids.of(entry)))

    def refuse(self, reader: Subscriber, reason: str | None) -> bool:
        """Give the sink what the reader is at as a dead letter; False: it is at nothing that is open."""
        entry = reader.open
        seq = self._ledger.dead_letter(reader, "rejected")
        if entry is None or seq is None:
            return False
        lane = entry.lane.name
        self._sink.refused(
            RejectedEvent(seq, self._stream, lane, entry.position, text_of(entry), reader.trigger_id, reason, self._delivery_ids.of(entry))
        )
        return True

    def fault(self, reader: Subscriber, error: Exception) -> int:
        """Retry the reader's raw event, later each time, or give it to the sink as a dead letter after the last attempt.

        Returns how often it has failed on it. The first time it is the next that the reader gets. Then it waits in the backlog, and so
        does what follows it in its lane; the reader goes on with its other lanes.
        """
        entry = None if reader.settled else reader.open
        if entry is None:
            self._ledger.requeue(reader)
            return 0
        trouble, delivery_id, policy = self._troubles[reader.trigger_id], self._delivery_ids.of(entry), self._policy
        failed = trouble.count(entry, delivery_id)
        wait = retry_wait(failed.attempts, policy.max_attempts, policy.retry_wait, self._chance)
        if failed.attempts >= policy.max_attempts:
            trouble.forget(entry, delivery_id)
            self._poison(reader, entry, failed, error)
            self._ledger.requeue(reader)
        elif wait and _can_be_kept(entry):
            lane, due = entry.lane.name, policy.clock() + wait
            trouble.retries[lane] = Retry(lane, entry.position, failed.attempts, due, mask(describe_error(error)))
            self.spill((reader,), stop=True)
            self._set_timer(reader.trigger_id)
        else:
            self._ledger.requeue(reader)
        return failed.attempts

    def fail(self, reader: Subscriber, error: StreamError) -> None:
        """Mark a reader that did not answer in time as away, and notify the sink. All that it owes is spilled."""
        self.fault(reader, error)
        self.spill((reader,), stop=True)
        self._sink.failed(self._stream, reader.trigger_id, error)

    def _set_timer(self, trigger_id: int) -> None:
        """Wake the trigger when the first of its retries is due."""
        self._cancel_timer(trigger_id)
        trouble, now = self._troubles.get(trigger_id), self._policy.clock()
        waits = [] if trouble is None else [retry.due - now for retry in trouble.retries.values() if retry.due > now]
        if waits:
            self._timers[trigger_id] = asyncio.get_running_loop().call_later(min(waits) + _TIMER_SLACK, self._is_due, trigger_id)

    def _cancel_timer(self, trigger_id: int) -> None:
        timer = self._timers.pop(trigger_id, None)
        if timer is not None:
            timer.cancel()

    def _is_due(self, trigger_id: int) -> None:
        self._set_timer(trigger_id)
        self._wake(trigger_id)

    def _poison(self, reader: Subscriber, entry: PendingEvent, failed: Failed, error: Exception) -> None:
        seq = self._ledger.dead_letter(reader, "dead_lettered")
        if seq is None:
            return
        reason = mask(describe_error(error))
        log.error("Raw event given up on", stream=self._stream, trigger_id=reader.trigger_id, attempts=failed.attempts, reason=reason)
        self._sink.poisoned(
            Poisoned(
                seq,
                self._stream,
                entry.lane.name,
                entry.position,
                text_of(entry),
                reader.trigger_id,
                failed.attempts + getattr(entry, "attempts", 0),
                failed.times,
                tuple(mask(entry) for entry in describe_traceback(error)[-_MAX_ENTRIES:]),
                reason,
                self._delivery_ids.of(entry),
            )
        )


def _can_be_kept(entry: PendingEvent) -> bool:
    """Whether a backlog can give the raw event back as it is. If not, neither can it what else its producer yields."""
    if isinstance(entry, PendingBacklogEvent):
        return True
    try:
        to_text(entry.raw)
    except MalformedEvent:
        return False
    return True
