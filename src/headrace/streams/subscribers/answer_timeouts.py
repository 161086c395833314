"""Fails the subscribers of one shared stream that do not answer in time."""

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

LONGEST_SLEEP: Final = 86_400.0
"""Seconds; where there is no ack timeout there is nothing to wake up for."""


class AnswerTimeouts:
    """The ack timeout of one stream. `changed` is called when raw events may have been resolved."""

    def __init__(
        self,
        stream: str,
        ledger: Ledger,
        policy: StreamPolicy,
        sink: WatchSink | None,
        *,
        mailboxes: dict[int, Subscription],
        registered: RegisteredSubscribers | None,
        acks: bool,
        changed: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._ledger = ledger
        self._policy = policy
        self._sink = sink
        self._mailboxes = mailboxes
        self._registered = registered
        self._acks = acks
        self._changed = changed

    async def run(self) -> None:
        """Fail those who do not answer in time.

        Sleeps to the oldest deadline, or to the first that can come when no reader owes anything.
        """
        timeout, clock = self._ledger.ack_timeout, self._policy.clock
        while True:
            deadline = self._ledger.deadline()
            delay = timeout if deadline is None else deadline - clock()
            await asyncio.sleep(max(0.0, min(delay, LONGEST_SLEEP)))
            now = self._ledger.now = clock()
            slow: list[Subscriber] = []
            for reader in self._ledger.overdue(now):
                if reader.registered and not self._hangs(reader, now):
                    slow.append(reader)
                else:
                    self.fail(reader, AckTimeout(f"Trigger {reader.trigger_id} did not answer {self._stream} within {timeout:g} seconds."))
            if slow and self._registered is not None:
                self._registered.spill(slow, stop=False)

    def fail(self, reader: Subscriber, error: StreamError) -> None:
        """Close the subscriber's mailbox with `error`; a registered one is away then, another one leaves."""
        log.warning("Subscriber failed", stream=self._stream, trigger_id=reader.trigger_id, reason=str(error))
        mailbox = self._mailboxes.get(reader.trigger_id)
        if reader.registered and self._registered is not None:
            if mailbox is not None:
                del self._mailboxes[reader.trigger_id]
                mailbox.close(error)
            self._registered.fail(reader, error)
        else:
            self._ledger.fail(reader)
            if mailbox is not None and mailbox.reader is reader:
                mailbox.close(error)
                if not self._acks and isinstance(self._sink, StreamSink):
                    self._sink.failed(self._stream, reader.trigger_id, error)  # its filter may hang
        self._changed()

    def _hangs(self, reader: Subscriber, now: float) -> bool:
        """Whether a registered reader is at one raw event for too long, or runs and has never asked for one."""
        mailbox = self._mailboxes.get(reader.trigger_id)
        return reader.is_stuck(self._ledger.ack_timeout, now) or (mailbox is not None and reader.open is None and not mailbox.is_pulling)
