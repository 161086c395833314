"""Copy dead letters to a queue of RabbitMQ. Each copy is persistent and mandatory, and has its own publisher confirm."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from headrace.errors import CopyRejected, HeadraceError, StreamError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.sources.dead_letters.message import PREFIX, copied_headers, copied_value, text_of
from headrace.sources.dead_letters.requests import batches, send_requests
from headrace.sources.dead_letters.time_limit import time_limit
from headrace.sources.declared_decoder import Decoding
from headrace.sources.rabbitmq.client import RabbitConnection
from headrace.sources.rabbitmq.message import DELIVERY_COUNT, STREAM_OFFSET
from headrace.sources.rabbitmq.server_errors import described, error_text
from headrace.sources.rabbitmq.settings import address_of
from headrace.sources.rabbitmq.streams.upstream import RabbitMQStreams
from headrace.sources.rabbitmq.upstream import RabbitMQ
from headrace.triggers.secrets import aget_connection
from headrace.wire.custody.copies import MAX_PAGE_DEAD_LETTERS

SEND_SECONDS: Final = 30.0
"""Time limit of one call, in which the connection is opened and all copies are confirmed."""
BATCH_BYTES: Final = 1024 * 1024
"""Bytes of the bodies that are sent without a pause. A larger body is alone: the server may refuse it, and then closes the channel."""
PERSISTENT: Final = 2
SERVER_HEADERS: Final = frozenset({"CC", "BCC", "x-death", "x-received-from", DELIVERY_COUNT, STREAM_OFFSET})
"""Headers that the server follows or writes: it would send the copy to other queues, or refuse it."""

HINT: Final = "Is the server running, and has it memory and disk space? Have the replicas of the queue a majority?"
NACK_HINT: Final = "Is the queue full, or are its replicas away?"
CREATE_HINT: Final = "Create it, or correct its name or the virtual host of the connection. Headrace creates no queues."
WRITE_HINT: Final = "Allow the user to write: rabbitmqctl set_permissions -p VHOST USER '' '^amq\\.default$' '^QUEUE$'"

_TOO_LARGE: Final = re.compile(r"message size \d+ is larger than configured max size \d+")


class _Outgoing(NamedTuple):
    """A message to publish."""

    body: bytes
    properties: Any


class RabbitDeadLetterSender(DeadLetterSender):
    """Sends copies to a queue through the default exchange, all of one call without a pause."""

    def __init__(self, connection: str, queue: str, decode: Decoding) -> None:
        self._connection_id = connection
        self._queue = queue
        self._decode = decode
        self._what = f"A copy to queue {queue!r} was not sent"
        self._connection: RabbitConnection | None = None
        self._channel: Any = None

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        """Send the copies and wait for the confirm of each.

        Raises:
            HeadraceError: The server refuses the connection or does not answer.
        """
        async with time_limit(SEND_SECONDS, f"queue {self._queue!r}", HINT):
            max_frame_bytes = (await self._open()).max_frame_bytes
            messages = [self._message(copy, max_frame_bytes) for copy in copies]
            requests = batches(messages, _size_of, max_entries=MAX_PAGE_DEAD_LETTERS, max_bytes=BATCH_BYTES)
            return await send_requests(requests, self._publish)

    async def aclose(self) -> None:
        """Close the connection."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _open(self) -> RabbitConnection:
        if self._connection is None:
            address = address_of(await aget_connection(self._connection_id))
            self._connection = await RabbitConnection.open(address, _ignore)
        return self._connection

    def _message(self, copy: DeadLetterCopy, max_frame_bytes: int | None) -> _Outgoing | CopyRejected:
        """Return the message of a copy, or why no server takes it."""
        from pamqp import frame
        from pamqp.commands import Basic
        from pamqp.header import ContentHeader

        body, is_original = copied_value(copy, self._decode)
        headers: dict[str, Any] = {
            _header_name(name): bytearray(value) if (text := text_of(value)) is None else text
            for name, value in copied_headers(copy, None if is_original else self._decode, has_key=False)
        }
        id = f"{copy.dead_letter.id}/{copy.dead_letter.number}"  # the client library needs it, to know what the server returns
        properties = Basic.Properties(delivery_mode=PERSISTENT, message_id=id, headers=headers)
        try:
            size = len(frame.marshal(ContentHeader(body_size=len(body), properties=properties), 1))
        except (TypeError, ValueError, OverflowError) as error:
            return CopyRejected(f"Its headers cannot be sent: {error}.")
        if max_frame_bytes is not None and size > max_frame_bytes:
            return CopyRejected(f"The server refuses its headers: {size:,} bytes, at most {max_frame_bytes:,} (frame_max).")
        return _Outgoing(body, properties)

    async def _publish(self, messages: Sequence[_Outgoing | CopyRejected]) -> list[HeadraceError | None]:
        """Publish messages in order, and return the result of each.

        A message that the server refuses ends the channel, and with it the confirms of the others. They are published again one by one.
        """
        connection = await self._open()
        if self._channel is None or self._channel.is_closed:
            try:
                self._channel = await connection.channel(confirms=True)
            except Exception as error:
                raise described(self._what, error) from None
        answers = await asyncio.gather(*(self._publish_one(message) for message in messages), return_exceptions=True)
        if len(messages) > 1 and any(_is_too_large(answer) for answer in answers):
            await self.aclose()  # the server ends it, because later messages arrive on the closed channel
            results: list[HeadraceError | None] = []
            for message, answer in zip(messages, answers, strict=True):
                results += await self._publish([message]) if isinstance(answer, BaseException) else [None]
            return results
        return [self._result(answer) for answer in answers]

    async def _publish_one(self, message: _Outgoing | CopyRejected) -> None:
        if isinstance(message, CopyRejected):
            raise message
        await self._channel.basic_publish(message.body, routing_key=self._queue, properties=message.properties, mandatory=True)

    def _result(self, answer: Any) -> HeadraceError | None:
        from aiormq.exceptions import DeliveryError, PublishError

        if not isinstance(answer, BaseException) or isinstance(answer, CopyRejected):
            return answer
        if isinstance(answer, PublishError):  # returned
            return UpstreamError(f"The dead-letter queue {self._queue!r} does not exist.", hint=CREATE_HINT)
        if isinstance(answer, DeliveryError):
            return StreamError(f"{self._what}: the server has not stored it (nack).", hint=NACK_HINT)
        if _is_too_large(answer):
            return CopyRejected(f"The server refuses it: {error_text(answer)}.")
        return described(self._what, answer, permission_hint=WRITE_HINT)


def _size_of(message: _Outgoing | CopyRejected) -> int:
    return 0 if isinstance(message, CopyRejected) else len(message.body)


def _header_name(name: str) -> str:
    return PREFIX + name if name in SERVER_HEADERS else name


def _is_too_large(answer: object) -> bool:
    return isinstance(answer, Exception) and _TOO_LARGE.search(error_text(answer)) is not None


def _ignore(error: BaseException) -> None:
    """Ignore the end of the connection: what waits for a confirm reports it."""


def make_sender(upstream: RabbitMQ | RabbitMQStreams) -> RabbitDeadLetterSender:
    """Return the sender to the dead-letter queue of an upstream."""
    description = upstream.description()
    if description.dead_letter_queue is None:
        raise UpstreamError(f"{upstream.stream_key()} has no dead-letter queue.")
    return RabbitDeadLetterSender(description.connection, description.dead_letter_queue, description.decode)
