"""A queue or subscription without sessions as a lease service: locks are leases, completions are acknowledgements."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from headrace.sources.decoding import Decoder
from headrace.sources.leases.leases import Lease
from headrace.sources.leases.service import Answer, Failures, Received
from headrace.sources.service_bus.message import event_of, id_of
from headrace.sources.service_bus.receiver import EntityReceiver, Lost

MAX_TOKENS: Final = 100
"""Locks of one request."""
UNREAD_PART: Final = 4
"""A stream that has not read for a fourth of the lock duration is full."""
POLL_SECONDS: Final = 0.25
"""How long a poll waits for messages. A close takes this time too."""


class QueueService:
    """The requests about one queue or subscription. A receipt is the token of a lock."""

    max_messages: Final = MAX_TOKENS

    def __init__(self, client: Any, receiver: EntityReceiver, lane: str, decode: Decoder) -> None:
        self._client = client
        self._receiver = receiver
        self._lane = lane
        self._decode = decode
        self._polled_at = time.monotonic()

    def poll(self) -> Callable[[], Awaitable[Answer]]:
        """Return the request of one poll."""
        return self._poll

    async def acknowledge(self, leases: Sequence[Lease]) -> Failures:
        """Complete messages."""
        return _failures(leases, await self._receiver.complete(_tokens(leases)))

    async def set_lease(self, leases: Sequence[Lease], seconds: int) -> Failures:
        """Renew the locks of messages for the time that the queue sets, or end them.

        If the stream takes no more messages, the ones that the service has sent ahead are given back before their locks end.
        """
        if seconds and time.monotonic() - self._polled_at > seconds / UNREAD_PART:
            await self._receiver.give_back()
        request = self._receiver.renew if seconds else self._receiver.abandon
        return _failures(leases, await request(_tokens(leases)))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._receiver.aclose()
        await self._client.close()

    async def _poll(self) -> Answer:
        """Return one answer. The service sends ahead, so that a second poll at the same time is of no use."""
        messages = await self._receiver.receive(POLL_SECONDS)
        self._polled_at = time.monotonic()
        return Answer([self._received(message) for message in messages], is_full=False)

    def _received(self, message: Any) -> Received:
        event = event_of(message, self._lane, self._decode)
        return Received(id_of(message), str(message.lock_token), None, self._lane, [event])


def _tokens(leases: Sequence[Lease]) -> list[UUID]:
    return [UUID(lease.receipt) for lease in leases]


def _failures(leases: Sequence[Lease], lost: Lost) -> Failures:
    named: Mapping[UUID, str] = lost
    return {lease: named[token] for lease, token in zip(leases, _tokens(leases), strict=True) if token in named}
