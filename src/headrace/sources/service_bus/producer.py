"""Read a queue or subscription of Service Bus as a shared stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import uuid4

from headrace.core.ledger.outcome import AdvanceItem
from headrace.sources.declared_decoder import Decoding, decoder_of
from headrace.sources.decoding import decode_again
from headrace.sources.leases.producer import LeaseProducer
from headrace.sources.leases.service import LeaseService, LeaseSettings
from headrace.sources.service_bus.client import next_session, open_client
from headrace.sources.service_bus.handler import TURN_SECONDS
from headrace.sources.service_bus.queue import POLL_SECONDS, QueueService
from headrace.sources.service_bus.receiver import MAX_MESSAGES, EntityReceiver
from headrace.sources.service_bus.session_receiver import SessionReceiver
from headrace.sources.service_bus.sessions import SessionService
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection

CHECKED_SESSION: Final = "headrace-connection-test"
KEEP_ALIVE: Final = 0
"""Without the task of the library that reads at the same time as its requests."""
ACCEPT_SECONDS: Final = 8.0
"""How long the service waits for a session with messages, less than the time limit of a request."""


class EntityDescription(NamedTuple):
    """The arguments of a `ServiceBus` upstream, as its producer needs them."""

    entity: str
    subscription: str | None
    connection: str
    decode: Decoding
    lock: int
    sessions: int | None = None
    dead_letter_queue: str | None = None

    @property
    def name(self) -> str:
        """The queue, or the topic and the subscription."""
        return self.entity if self.subscription is None else f"{self.entity}/Subscriptions/{self.subscription}"


class ServiceBusProducer(LeaseProducer):
    """The producer of a `ServiceBus` upstream. A lane is a session, or a queue or subscription without sessions."""

    def __init__(self, description: EntityDescription) -> None:
        super().__init__()
        self._description = description
        self._sessions: SessionService | None = None

    async def connect(self) -> tuple[LeaseService, LeaseSettings]:
        """Connect a receiver to the queue. With sessions, receivers connect later. Raises as `open_stream` does."""
        description, what = self._description, f"{self._description.name!r} cannot be read"
        client, decode = await open_client(await aget_connection(description.connection)), decoder_of(description.decode)
        settings = LeaseSettings(description.name, description.lock, description.lock, POLL_SECONDS, description.sessions is not None)
        if description.sessions is not None:
            await _check_sessions(client, description, what)
            make = receivers_of(client, description, session_id=next_session(), max_wait_time=ACCEPT_SECONDS)
            self._sessions = SessionService(client, make, what, decode, lock_seconds=description.lock, limit=description.sessions)
            return self._sessions, settings
        receiver = EntityReceiver(receivers_of(client, description), what)
        service = QueueService(client, receiver, description.name, decode)
        try:
            await receiver.open()
        except BaseException:
            await service.aclose()
            raise
        return service, settings

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Complete the answered messages of the batch. No more messages of a session with a failed one are received. Raises as the base."""
        if self._sessions is not None:
            self._sessions.stop({part.lease.group for part, outcome in batch if outcome.failed})
        await super().advance(batch)

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed message, decoded again."""
        return decode_again(decoder_of(self._description.decode), message)


async def _check_sessions(client: Any, description: EntityDescription, what: str) -> None:
    """Open a session that has no messages: otherwise an absent queue is reported late. Closes the client if the service refuses it."""
    make = receivers_of(client, description, session_id=f"{CHECKED_SESSION}-{uuid4().hex}")
    receiver = SessionReceiver(make, what)
    try:
        await receiver.open()
    except BaseException:
        await receiver.aclose()
        await client.close()
        raise
    await receiver.aclose()


def receivers_of(client: Any, description: EntityDescription, **options: Any) -> Callable[[], Any]:
    """Return the function that creates a receiver of the library."""
    named = {"prefetch_count": MAX_MESSAGES, "socket_timeout": TURN_SECONDS, "keep_alive": KEEP_ALIVE} | options
    if description.subscription is None:
        return partial(client.get_queue_receiver, description.entity, **named)
    return partial(client.get_subscription_receiver, description.entity, description.subscription, **named)
