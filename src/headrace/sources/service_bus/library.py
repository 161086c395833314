"""The requests of the client library that are not in its public part. It is pinned to one minor version because of them.

The public requests are about one message each, and read the connection until they are answered. Those to the management node of the
service are about many messages.
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
    """The number of a message on its link, and its tag."""

    number: int
    tag: bytes


def delivery_of(message: Any) -> Delivery:
    """Return the delivery of a received message."""
    return Delivery(int(message._delivery_id), message._delivery_tag)


async def settle_range(receiver: Any, run: Sequence[Delivery], seconds: float) -> None:
    """Complete the messages of a run without a gap, over the link that received them, and wait for the service up to `seconds`."""

    async def settle_run() -> None:
        numbers = (run[0].number, run[-1].number)
        await receiver._handler.settle_messages_async(numbers, run[0].tag, "accepted", await_outcome=True, outcome_timeout=seconds)

    await receiver._do_retryable_operation(settle_run)
    receiver._handler._link._received_delivery_tags.difference_update(delivery.tag for delivery in run)


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
