"""The registered readers of one shared stream. Raw events that they spill, reject or fail on go to the sink."""

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
from headrace.streams.limits.policy import StreamPolicy
from headrace.streams.sink import Malformed, Poisoned, RejectedEvent, Spilled, StreamSink
from headrace.streams.subscribers.failure_counter import Failed, FailureCounter, Retry, retry_wait, text_of
from headrace.streams.subscribers.raw_id import dead_letter_origin_id, former_stream
from headrace.streams.subscribers.raw_text import to_text
from headrace.streams.watches import printed
from headrace.triggers.masking import mask

log = structlog.get_logger(__name__)

_MAX_ENTRIES = 100  # of a traceback
_TIMER_SLACK: Final = 0.01
"""Seconds by which a timer is later than its retry, so that the retry is due by any clock."""


class RegisteredSubscribers:
    """Readers that owe their answers whether they run or not. `wake` makes a waiting one read its backlog again."""

    def __init__(self, stream: str, ledger: Ledger, sink: StreamSink, policy: StreamPolicy, wake: Callable[[int], None]) -> None:
        self._stream = stream
        self._ledger = ledger
        self._sink = sink
        self._policy = policy
        self._wake = wake
        self._random = Random()  # noqa: S311 - jitter of retries is not security-relevant
        self._readers: dict[int, Subscriber] = {}
        self._failures: dict[int, FailureCounter] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, trigger_id: int) -> bool:
        return trigger_id in self._readers

    def add(self, trigger_id: int, failures: FailureCounter) -> None:
        """Register a trigger, which is offline until it subscribes."""
        reader = self._readers[trigger_id] = self._ledger.register(trigger_id)
        reader.retries, reader.stream = failures.retries, self._stream
        self._failures[trigger_id] = failures
        self._set_timer(trigger_id)

    def drop(self, trigger_id: int) -> None:
        """Remove a trigger with all that it owes."""
        self._ledger.drop(self._readers.pop(trigger_id))
        del self._failures[trigger_id]
        self._cancel_timer(trigger_id)

    def close(self) -> None:
        """Cancel all timers: the stream has ended."""
        for trigger_id in tuple(self._timers):
            self._cancel_timer(trigger_id)

    def retries(self) -> list[tuple[int, Retry]]:
        """Return the raw events that wait for a retry, with the id of the trigger that failed on each."""
        return [(trigger_id, retry) for trigger_id, failures in self._failures.items() for retry in failures.retries.values()]

    def reader(self, trigger_id: int) -> Subscriber:
        """Return the reader of a registered trigger."""
        return self._readers[trigger_id]

    def failures_of(self, trigger_id: int) -> FailureCounter:
        """Return the failures of a registered trigger."""
        return self._failures[trigger_id]

    def spill(self, readers: Iterable[Subscriber], *, stop: bool) -> None:
        """Mark triggers as offline and spill all that they owe. With `stop`, they do not finish their open raw events."""
        for spill in self._ledger.spill(readers, stop=stop):
            self.hand_over(spill)

    def hand_over(self, spill: Spill) -> None:
        """Give the sink a raw event for backlogs. One that cannot be text becomes a dead letter."""
        seq, entry, readers = spill
        if entry.position is None:
            raise StreamError("A raw event without a position cannot be stored in a backlog.")
        who = tuple([reader.trigger_id for reader in readers])
        lane = entry.lane.name
        try:
            text = to_text(entry.raw)
        except MalformedEvent as error:
            raw = printed(entry.raw, lane, entry.position)
            self._ledger.mark_rejected(seq)
            self._sink.malformed(Malformed(seq, self._stream, lane, entry.position, raw, str(error), who, dead_letter_origin_id(entry)))
        else:
            self._sink.spilled(Spilled(seq, self._stream, lane, entry.position, text, who))

    def reject(self, reader: Subscriber, reason: str | None) -> bool:
        """Give the sink the open raw event as a dead letter, and return whether there is one."""
        entry = reader.open
        seq = self._ledger.dead_letter(reader, "rejected")
        if entry is None or seq is None:
            return False
        stream, lane = former_stream(entry) or self._stream, entry.lane.name
        self._sink.rejected(
            RejectedEvent(seq, stream, lane, entry.position, text_of(entry), reader.trigger_id, reason, dead_letter_origin_id(entry))
        )
        return True

    def record_failure(self, reader: Subscriber, error: Exception) -> int:
        """Retry the reader's raw event, later each time, or give it to the sink as a dead letter after the last attempt.

        Return the number of failures on it. After the first one the reader gets it again immediately. Then it waits in the backlog, with
        all later raw events of its lane; the reader continues with its other lanes.
        """
        entry = None if reader.settled else reader.open
        if entry is None:
            self._ledger.requeue(reader)
            return 0
        failures, policy = self._failures[reader.trigger_id], self._policy
        failed = failures.count(entry)
        wait = retry_wait(failed.attempts, policy.max_attempts, policy.retry_wait, self._random)
        if failed.attempts >= policy.max_attempts:
            failures.reset(entry)
            self._poison(reader, entry, failed, error)
            self._ledger.requeue(reader)
        elif wait and _fits_backlog(entry):
            lane, due = entry.lane.name, policy.clock() + wait
            failures.retries[lane] = Retry(lane, entry.position, failed.attempts, due, mask(describe_error(error)))
            self.spill((reader,), stop=True)
            self._set_timer(reader.trigger_id)
        else:
            self._ledger.requeue(reader)
        return failed.attempts

    def fail(self, reader: Subscriber, error: StreamError) -> None:
        """Mark a reader that did not answer in time as offline, and notify the sink. All that it owes is spilled."""
        self.record_failure(reader, error)
        self.spill((reader,), stop=True)
        self._sink.failed(self._stream, reader.trigger_id, error)

    def _set_timer(self, trigger_id: int) -> None:
        """Wake the trigger when the first of its retries is due."""
        self._cancel_timer(trigger_id)
        failures, now = self._failures.get(trigger_id), self._policy.clock()
        waits = [] if failures is None else [retry.due - now for retry in failures.retries.values() if retry.due > now]
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
        stream = former_stream(entry) or self._stream
        log.error("Raw event given up on", stream=stream, trigger_id=reader.trigger_id, attempts=failed.attempts, reason=reason)
        self._sink.poisoned(
            Poisoned(
                seq,
                stream,
                entry.lane.name,
                entry.position,
                text_of(entry),
                reader.trigger_id,
                failed.attempts + getattr(entry, "attempts", 0),
                failed.times,
                tuple(mask(entry) for entry in describe_traceback(error)[-_MAX_ENTRIES:]),
                reason,
                dead_letter_origin_id(entry),
            )
        )


def _fits_backlog(entry: PendingEvent) -> bool:
    """Whether a backlog can return the raw event unchanged. If not, it cannot return others of the producer either."""
    if isinstance(entry, PendingBacklogEvent):
        return True
    try:
        to_text(entry.raw)
    except MalformedEvent:
        return False
    return True
