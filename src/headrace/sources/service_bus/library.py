"""The requests of the client library that are not in its public part. It is pinned to one minor version because of them.

The public requests are about one message each, and read the connection until they are answered. These are about many messages.
"""

# ruff: noqa: SLF001
from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

_LOG = logging.getLogger(__name__)


async def settle(receiver: Any, state: str, tokens: Sequence[UUID]) -> None:
    """Settle the messages of locks, all or none of them. The states are those of the service: `completed`, `abandoned`."""
    await receiver._do_retryable_operation(receiver._settle_message_via_mgmt_link, settlement=state, lock_tokens=[*tokens])


class Delivery(NamedTuple):
    """The number of a message on its link, and the token of its lock."""

    number: int
    token: UUID


def delivery_of(message: Any) -> Delivery:
    """Return the delivery of a received message."""
    return Delivery(int(message._delivery_id), message.lock_token)


async def complete_range(receiver: Any, run: Sequence[Delivery], seconds: float) -> None:
    """Complete the messages of a run without a gap, over the link that received them, and wait for the service up to `seconds`."""
    await _settle_range(receiver, run, "accepted", await_outcome=True, outcome_timeout=seconds)


async def release_range(receiver: Any, run: Sequence[Delivery]) -> None:
    """Make the messages of a run without a gap available again. The service confirms nothing."""
    await _settle_range(receiver, run, "released")


async def _settle_range(receiver: Any, run: Sequence[Delivery], outcome: str, **options: Any) -> None:
    async def settle_run() -> None:
        await receiver._handler.settle_messages_async((run[0].number, run[-1].number), run[0].token.bytes_le, outcome, **options)

    tags = receiver._handler._link._received_delivery_tags
    try:
        await receiver._do_retryable_operation(settle_run)
    finally:
        tags.difference_update(delivery.token.bytes_le for delivery in run)


async def renew_locks(receiver: Any, tokens: Sequence[UUID], seconds: float) -> None:
    """Renew the locks of messages, all or none of them. Wait for the answer up to `seconds`."""
    await receiver._renew_locks(*tokens, timeout=seconds)


def arrived_messages(receiver: Any) -> int:
    """Return the number of messages that have arrived and were not received."""
    return 0 if receiver._handler is None else int(receiver._handler._received_messages.qsize())


async def check_sender(sender: Any, seconds: float) -> None:
    """Raise the error of a sender that the service has refused. The library takes it for an open one, and drops the error later."""
    await sender._handler._connection.listen(wait=seconds)
    link = sender._handler._link
    if link._error is not None:
        raise sender._amqp_transport.create_servicebus_exception(_LOG, link._error)


class Connections:
    """The connections that a receiver or sender of the library opens. The library leaves those open whose end it does not expect."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self._opened: list[Any] = []
        create = handler._create_handler

        def create_client(auth: Any) -> None:
            create(auth)
            self._watch(handler._handler)

        handler._create_handler = create_client

    def cut(self) -> None:
        """Cut all connections. A request that is running fails then, and messages that have arrived stay locked."""
        client = self._handler._handler
        for connection in (*self._opened, None if client is None else client._connection):
            writer = None if connection is None else connection._transport.writer
            if writer is not None:
                writer.transport.abort()

    def _watch(self, client: Any) -> None:
        open_client = client.open_async

        async def open_async(connection: Any = None) -> None:
            try:
                await open_client(connection=connection)
            finally:
                self._opened.append(client._connection)

        client.open_async = open_async
