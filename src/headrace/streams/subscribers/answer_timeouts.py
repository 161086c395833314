"""Fails subscribers of one shared stream that do not answer within the ack timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import Subscriber
from headrace.errors import AckTimeout, StreamError
from headrace.streams.limits.policy import StreamPolicy
from headrace.streams.sink import StreamSink, WatchSink
from headrace.streams.subscribers.registered import RegisteredSubscribers
from headrace.streams.subscribers.subscription import Subscription

log = structlog.get_logger(__name__)

MAX_SLEEP_SECONDS: Final = 86_400.0
"""The sleep of a stream without an ack timeout."""


class AnswerTimeouts:
    """The ack timeout of one stream. `changed` is called when raw events may have been resolved."""

    def __init__(
        self,
        stream: str,
        ledger: Ledger,
        policy: StreamPolicy,
        sink: WatchSink | None,
        *,
        subscriptions: dict[int, Subscription],
        registered: RegisteredSubscribers | None,
        acks: bool,
        changed: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._ledger = ledger
        self._policy = policy
        self._sink = sink
        self._subscriptions = subscriptions
        self._registered = registered
        self._acks = acks
        self._changed = changed

    async def run(self) -> None:
        """Fail subscribers that do not answer in time.

        Sleep until the next deadline, or for the ack timeout if no reader owes an answer.
        """
        timeout, clock = self._ledger.ack_timeout, self._policy.clock
        while True:
            deadline = self._ledger.subscribers.deadline(timeout)
            delay = timeout if deadline is None else deadline - clock()
            await asyncio.sleep(max(0.0, min(delay, MAX_SLEEP_SECONDS)))
            now = self._ledger.now = clock()
            slow: list[Subscriber] = []
            for reader in self._ledger.subscribers.overdue(now, timeout):
                if reader.registered and not self._is_stuck(reader, now):
                    slow.append(reader)
                else:
                    self.fail(reader, AckTimeout(f"Trigger {reader.trigger_id} did not answer {self._stream} within {timeout:g} seconds."))
            if slow and self._registered is not None:
                self._registered.spill(slow, stop=False)

    def fail(self, reader: Subscriber, error: StreamError) -> None:
        """Close the subscription with `error`. A registered reader becomes offline, any other leaves."""
        log.warning("Subscriber failed", stream=self._stream, trigger_id=reader.trigger_id, reason=str(error))
        subscription = self._subscriptions.get(reader.trigger_id)
        if reader.registered and self._registered is not None:
            if subscription is not None:
                del self._subscriptions[reader.trigger_id]
                subscription.close(error)
            self._registered.fail(reader, error)
        else:
            self._ledger.fail(reader)
            if subscription is not None and subscription.reader is reader:
                subscription.close(error)
                if not self._acks and isinstance(self._sink, StreamSink):
                    self._sink.failed(self._stream, reader.trigger_id, error)  # its filter may hang
        self._changed()

    def _is_stuck(self, reader: Subscriber, now: float) -> bool:
        """Whether the open raw event of a registered reader is overdue, or its filter runs and has never requested one."""
        subscription = self._subscriptions.get(reader.trigger_id)
        return reader.is_stuck(self._ledger.ack_timeout, now) or (
            subscription is not None and reader.open is None and not subscription.is_pulling
        )
