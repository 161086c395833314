"""Receive the messages of one queue or subscription, and complete and renew many at once.

Messages are completed over the link that received them, a range of their numbers with one frame. After another connection, the management
node of the queue completes them, by the tokens of their locks.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID

from headrace.errors import StreamError, UpstreamError
from headrace.sources.service_bus.handler import ANSWER_SECONDS, TURN_SECONDS, Handler
from headrace.sources.service_bus.library import Delivery, arrived_messages, complete_range, delivery_of, release_range, renew_locks, settle
from headrace.sources.service_bus.service_errors import is_entity_missing, is_idle, is_lock_lost

KEEPALIVE_SECONDS: Final = 30.0
"""After this time without an answer, the receiver sends a request. Otherwise a silent connection looks like an empty queue."""
MAX_MESSAGES: Final = 200
"""Messages that the service sends ahead."""
MAX_DELIVERIES: Final = 100_000
"""Recorded deliveries of one link. The management node completes the messages of older ones."""

Lost: TypeAlias = Mapping[UUID, str]
"""The locks that have ended, with what the service says."""


class EntityReceiver(Handler):
    """Receives the messages of one queue or subscription. The errors of lost locks are raised as they are."""

    def __init__(self, make: Callable[[], Any], what: str) -> None:
        super().__init__(make, what)
        self._ahead: list[Any] = []
        """What `open` has received."""
        self._deliveries: dict[UUID, Delivery] = {}
        """The deliveries on the present link of messages that are not completed, by their locks."""
        self._answered_at = 0.0

    async def open(self) -> None:
        """Connect. Raises `StreamError` or `UpstreamError`.

        The library takes a refused receiver for an open one, until it receives.
        """
        self._ahead += self._record(await self.request(receive_once))

    async def reach(self) -> None:
        """Connect. Raises unless the service answers, be it that there is no such queue."""
        try:
            await self.open()
        except UpstreamError as error:
            if error.__cause__ is None or not is_entity_missing(error.__cause__):
                raise

    async def receive(self, seconds: float) -> list[Any]:
        """Return the messages that have arrived, after up to `seconds` without one."""
        end = time.monotonic() + seconds
        if self._ahead:
            ahead, self._ahead = self._ahead, []
            return ahead
        while True:
            messages = await self._receive_once()
            now = time.monotonic()
            if messages:
                self._answered_at = now
            elif now - self._answered_at >= KEEPALIVE_SECONDS:
                await self.peek(1, 1)
            if messages or now >= end:
                return messages

    async def complete(self, tokens: Sequence[UUID]) -> Lost:
        """Remove messages from the queue, by the tokens of their locks."""
        lost: dict[UUID, str] = {}
        runs, others = self._runs(tokens)
        for run in runs:
            try:
                if not await self.request(partial(self._complete_run, run=run)):
                    others += [delivery.token for delivery in run]
            except Exception as error:
                if not is_lock_lost(error):
                    raise
                # The others of the run are completed, and the library does not say which.
                lost |= {delivery.token: str(error) for delivery in run}
        return lost | {**await self._complete_later(others)} if others else lost

    async def abandon(self, tokens: Sequence[UUID]) -> Lost:
        """Make messages available again. Over the link that received them, that counts as no delivery."""
        runs, others = self._runs(tokens)
        for run in runs:
            if not await self.request(partial(self._release_run, run=run)):
                others += [delivery.token for delivery in run]
        return await self._divided(others, lambda receiver, some: settle(receiver, "abandoned", some)) if others else {}

    async def renew(self, tokens: Sequence[UUID]) -> Lost:
        """Renew the locks of messages. The service sets how long they last."""
        return await self._divided(tokens, lambda receiver, some: renew_locks(receiver, some, ANSWER_SECONDS))

    async def give_back(self) -> None:
        """Return messages that have arrived and were not received. Otherwise their locks would end, which counts as a delivery."""
        async with self._turn:
            if self._handler is not None and arrived_messages(self._handler):
                await self._discard()

    async def peek(self, number: int, count: int) -> list[Any]:
        """Return up to `count` messages from a sequence number on, without their locks."""
        messages: list[Any] = await self.request(
            lambda receiver: receiver.peek_messages(count, sequence_number=number, timeout=ANSWER_SECONDS)
        )
        self._answered_at = time.monotonic()
        return messages

    async def _complete_run(self, receiver: Any, run: Sequence[Delivery]) -> bool:
        """Complete the messages of a run. Return False if they came over an earlier link."""
        if not self._take(run):
            return False
        await complete_range(receiver, run, ANSWER_SECONDS)
        return True

    async def _release_run(self, receiver: Any, run: Sequence[Delivery]) -> bool:
        if not self._take(run):
            return False
        await release_range(receiver, run)
        return True

    def _runs(self, tokens: Sequence[UUID]) -> tuple[list[list[Delivery]], list[UUID]]:
        """Return the runs of deliveries on the present link, and the locks of other messages."""
        present = [self._deliveries[token] for token in tokens if token in self._deliveries]
        return runs_of(sorted(present)), [token for token in tokens if token not in self._deliveries]

    def _take(self, run: Sequence[Delivery]) -> bool:
        """Remove the deliveries of a run. Return whether they are of the present link."""
        present = [self._deliveries.pop(delivery.token, None) for delivery in run]
        return present == [*run]

    async def _complete_later(self, tokens: Sequence[UUID]) -> Lost:
        """Complete messages that came over an earlier link."""
        return await self._divided(tokens, lambda receiver, some: settle(receiver, "completed", some))

    async def _divided(self, tokens: Sequence[UUID], request: Callable[[Any, Sequence[UUID]], Awaitable[Any]]) -> Lost:
        """Send a request about several locks. If one of them has ended, the service refuses it for all: it is sent again for each half."""
        try:
            await self.request(lambda receiver: request(receiver, tokens))
        except Exception as error:
            if not is_lock_lost(error):
                raise
            if len(tokens) == 1:
                return {tokens[0]: str(error)}
            middle = len(tokens) // 2
            return {**await self._divided(tokens[:middle], request), **await self._divided(tokens[middle:], request)}
        return {}

    async def _receive_once(self) -> list[Any]:
        """Return what has arrived. The service closes links that were idle for ten minutes: then connect again."""
        try:
            messages: list[Any] = await self.request(receive_once)
        except StreamError as error:
            if error.__cause__ is None or not is_idle(error.__cause__):
                raise
            messages = await self.request(receive_once)
        return self._record(messages)

    def _record(self, messages: list[Any]) -> list[Any]:
        """Record the deliveries of received messages, and return the messages."""
        self._deliveries |= {message.lock_token: delivery_of(message) for message in messages}
        while len(self._deliveries) > MAX_DELIVERIES:  # failed messages, which came again with other locks
            del self._deliveries[next(iter(self._deliveries))]
        return messages

    def _create(self) -> Any:
        self._answered_at = time.monotonic()
        return super()._create()

    async def _error(self, error: Exception) -> Exception:
        return error if is_lock_lost(error) else await super()._error(error)

    async def _discard(self) -> None:
        self._deliveries = {}
        await super()._discard()


def runs_of(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    """Divide sorted deliveries into runs whose numbers have no gap."""
    runs: list[list[Delivery]] = []
    for delivery in deliveries:
        if runs and delivery.number == runs[-1][-1].number + 1:
            runs[-1].append(delivery)
        else:
            runs.append([delivery])
    return runs


async def receive_once(receiver: Any) -> Any:
    """Return what has arrived, or the first message that arrives within TURN_SECONDS.

    With a greater number than what has arrived, the library would wait for more.
    """
    return await receiver.receive_messages(max_message_count=max(1, arrived_messages(receiver)), max_wait_time=TURN_SECONDS)
