"""Copy dead letters to a queue or topic of Service Bus, in batches. The service stores a whole batch or nothing of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple

from headrace.errors import HeadraceError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.sources.connections.client_library import import_library
from headrace.sources.dead_letters.message import PREFIX, copied_value, message_headers, origin_headers, text_headers
from headrace.sources.dead_letters.requests import Result, batches, send_divided, send_requests
from headrace.sources.dead_letters.time_limit import time_limit
from headrace.sources.decoding import ATTRIBUTE_PREFIX
from headrace.sources.service_bus.client import LIBRARY, open_client
from headrace.sources.service_bus.handler import TURN_SECONDS, Handler
from headrace.sources.service_bus.library import check_sender
from headrace.sources.service_bus.producer import KEEP_ALIVE, EntityDescription
from headrace.sources.service_bus.service_errors import REJECTED_SENDS
from headrace.sources.service_bus.upstream import ServiceBus
from headrace.triggers.secrets import aget_connection

SEND_SECONDS: Final = 30.0
"""Time limit of one call, in which the connection is opened and all copies are confirmed."""
HINT: Final = "Is the namespace reachable, and has the queue room?"
MAX_MESSAGES: Final = 100
BATCH_BYTES: Final = 200_000
"""Bytes of the messages of one batch. The Standard tier takes 256 KB. A larger message has a batch of its own."""
PROPERTIES_BYTES: Final = 32_000
"""Bytes of the headers of its message that a copy has as properties. The service takes 64 KB of properties."""
MAX_ID_CHARS: Final = 128
"""Characters of the id or the session of a message."""
LEFT_OUT: Final = f"{PREFIX}left-out"
"""The property with the number of headers of the message that the copy lacks."""
CLOUD_EVENTS_PREFIX: Final = "cloudEvents:"


class _Entry(NamedTuple):
    """One message of a batch, and its bytes as far as they count against the limit of the batch."""

    message: Any
    size: int


class ServiceBusDeadLetterSender(DeadLetterSender):
    """Sends copies to a queue or topic, one batch after the other."""

    def __init__(self, description: EntityDescription, queue: str) -> None:
        self._description = description
        self._queue = queue
        self._what = f"Copies to queue {queue!r} cannot be sent"
        self._client: Any = None
        self._sender: Handler | None = None
        self._message: Any = None

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        """Send the copies, up to the first batch that must be repeated.

        Raises:
            HeadraceError: The queue does not exist, or the service refuses the connection or does not answer.
        """
        async with time_limit(SEND_SECONDS, f"queue {self._queue}", HINT):
            sender = self._sender or await self._open()
            return await send_requests(_requests([self._entry(copy) for copy in copies]), partial(self._send_request, sender))

    async def aclose(self) -> None:
        """Close the connection."""
        if self._sender is not None:
            await self._sender.aclose()
        if self._client is not None:
            await self._client.close()

    async def _open(self) -> Handler:
        """Connect, and check that there is the queue."""
        self._client = self._client or await open_client(await aget_connection(self._description.connection))
        self._message = import_library(LIBRARY, "service-bus", "azure.servicebus").ServiceBusMessage
        make = partial(self._client.get_queue_sender, self._queue, socket_timeout=TURN_SECONDS, keep_alive=KEEP_ALIVE)
        sender = self._sender = Handler(make, self._what, REJECTED_SENDS)
        await sender.request(lambda library: check_sender(library, TURN_SECONDS))
        return sender

    async def _send_request(self, sender: Handler, entries: Sequence[_Entry]) -> list[Result]:
        return await send_divided(entries, partial(self._send_batch, sender), _as_it_is, _is_too_large)

    async def _send_batch(self, sender: Handler, entries: Sequence[_Entry]) -> list[Result]:
        """Send the messages of one batch. Raises its error as one of Headrace."""
        messages = [entry.message for entry in entries]
        await sender.request(lambda library: library.send_messages(messages[0] if len(messages) == 1 else messages, timeout=SEND_SECONDS))
        return [None] * len(entries)

    def _entry(self, copy: DeadLetterCopy) -> _Entry:
        """Return the message of a copy. Its session is that of its message, so that copies to a queue with sessions have their order."""
        description, metadata, origin = self._description, copy.metadata, copy.dead_letter
        value, is_original = copied_value(copy, description.decode)
        own = origin_headers(copy, None if is_original else description.decode, has_key=False)
        headers, left_out = _first(message_headers(copy), PROPERTIES_BYTES)
        if left_out:
            own.append((LEFT_OUT, str(left_out).encode()))
        properties = text_headers([*((_property_name(name), content) for name, content in headers), *own])
        message = self._message(
            value,
            application_properties=properties,
            session_id=_id((metadata.key if metadata is not None else None) or origin.lane or origin.stream),
            message_id=_id(f"{origin.id}/{origin.number}"),
        )
        size = len(value) + sum(len(name.encode()) + len(text.encode()) + 10 for name, text in properties.items())
        return _Entry(message, size)


def make_sender(upstream: ServiceBus) -> ServiceBusDeadLetterSender:
    """Return the sender to the dead-letter queue of an upstream."""
    description = upstream.description()
    if description.dead_letter_queue is None:
        raise UpstreamError(f"{upstream.stream_key()} has no dead-letter queue.")
    return ServiceBusDeadLetterSender(description, description.dead_letter_queue)


def _first(headers: Sequence[tuple[str, bytes]], max_bytes: int) -> tuple[list[tuple[str, bytes]], int]:
    """Return the headers that fit, and the number of the others."""
    first: list[tuple[str, bytes]] = []
    for name, content in headers:
        size = len(name.encode()) + len(content) * 4 // 3  # base64 at worst
        if size <= max_bytes:
            first.append((name, content))
            max_bytes -= size
    return first, len(headers) - len(first)


def _property_name(name: str) -> str:
    """Return the name of a property. Attributes of CloudEvents get the prefix back with which AMQP has them."""
    return CLOUD_EVENTS_PREFIX + name[len(ATTRIBUTE_PREFIX) :] if name.startswith(ATTRIBUTE_PREFIX) else name


def _id(text: str) -> str:
    """Return a text that the service takes as an id: the text itself, or its SHA-256."""
    return text if len(text) <= MAX_ID_CHARS else hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _requests(entries: Sequence[_Entry]) -> Iterator[Sequence[_Entry]]:
    """Divide messages into batches, in their order. A partitioned queue rejects a batch with several sessions."""
    for _, run in groupby(entries, lambda entry: entry.message.session_id):
        yield from batches([*run], lambda entry: entry.size, max_entries=MAX_MESSAGES, max_bytes=BATCH_BYTES)


def _is_too_large(error: Exception) -> bool:
    """Return whether the service or the library rejects a batch, because one of its messages is too large."""
    return isinstance(error.__cause__, ValueError)


def _as_it_is(error: Exception) -> HeadraceError:
    """Return the error of a request, which is one of Headrace already. Raises any other."""
    if not isinstance(error, HeadraceError):
        raise error
    return error
