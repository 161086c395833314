"""Copy dead letters to a topic of Pub/Sub, with requests of many messages. The messages of one request have the same ordering key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from headrace.errors import CopyRejected, HeadraceError, StreamError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.sources.connections.client_library import import_library
from headrace.sources.dead_letters.message import PREFIX, copied_value, first_names, message_headers, origin_headers, text_headers, text_of
from headrace.sources.dead_letters.requests import Result, batches, send_requests
from headrace.sources.declared_decoder import Decoding
from headrace.sources.decoding import ATTRIBUTE_PREFIX
from headrace.sources.pubsub.client import PubSubClient, answer_to, transport_arguments
from headrace.sources.pubsub.message import CLOUD_EVENTS_PREFIX
from headrace.sources.pubsub.service_errors import REJECTED_PUBLICATIONS, code_of, described
from headrace.sources.pubsub.settings import client_settings
from headrace.sources.pubsub.upstream import PubSub
from headrace.triggers.secrets import aget_connection

ANSWER_SECONDS: Final = 30.0
"""Time limit for the answer to one request."""
CLOSE_SECONDS: Final = 5.0
MAX_MESSAGES: Final = 1_000
"""Messages of one request."""
MAX_BYTES: Final = 10_000_000
"""The most bytes of one message, with its attributes."""
REQUEST_BYTES: Final = 9_000_000
"""The most bytes of several messages of one request. The service takes 10,000,000 with the form of the request."""
MAX_ATTRIBUTES: Final = 100
MAX_VALUE_BYTES: Final = 1_024
"""Bytes of the value of one attribute."""
MAX_KEY_BYTES: Final = 1_024
"""Bytes of an ordering key."""
CUT: Final = f"{PREFIX}cut"
"""The attribute with the names of attributes with cut values, as a JSON array."""
LEFT_OUT: Final = f"{PREFIX}left-out"
"""The attribute with the number of attributes of the message that the copy lacks."""
MARKERS: Final = 3
"""The attributes that say what was encoded, cut and left out."""
TRIGGERS: Final = f"{PREFIX}triggers"


class _Entry(NamedTuple):
    """One message of a request, and its bytes."""

    fields: Mapping[str, Any]
    size: int


class PubSubDeadLetterSender(DeadLetterSender):
    """Sends copies to a topic, one request after the other."""

    def __init__(self, connection: str, topic: str, subscription: str, decode: Decoding) -> None:
        self._connection = connection
        self._topic = topic
        self._subscription = subscription
        self._decode = decode
        self._what = f"Copies to topic {topic!r} cannot be sent"
        self._publisher: Any = None
        self._path = ""

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        """Send the copies, up to the first request that must be repeated.

        Raises:
            HeadraceError: The topic does not exist, or is that of the subscription. Or the service refuses the connection or does not
                answer.
        """
        if not self._path:
            await self._open()
        entries = [self._entry(copy) for copy in copies]
        accepted = [entry for entry in entries if entry.size <= MAX_BYTES]
        results = iter(await send_requests(_requests(accepted), self._send_request))
        return [_too_large(entry) if entry.size > MAX_BYTES else next(results) for entry in entries]

    async def aclose(self) -> None:
        """Close the channel."""
        if self._publisher is not None:
            closing = asyncio.ensure_future(self._publisher.transport.close())
            await asyncio.wait([closing], timeout=CLOSE_SECONDS)
            closing.cancel()

    async def _open(self) -> None:
        """Connect, and check the topic as far as this user may see it."""
        connection = await aget_connection(self._connection)
        settings = client_settings(connection)
        module = "google.pubsub_v1.services.publisher"
        what = f"{self._what}: the client library"
        library = await asyncio.to_thread(import_library, what, "pubsub", module, f"{module}.transports", "grpc.aio")
        path = f"projects/{settings.project}/topics/{self._topic}"
        try:
            if self._publisher is None:
                kind = library.transports.PublisherGrpcAsyncIOTransport
                self._publisher = library.PublisherAsyncClient(transport=kind(**transport_arguments(settings, kind)))
            await answer_to(self._publisher.get_topic(topic=path, retry=None, timeout=ANSWER_SECONDS))
        except Exception as error:
            if code_of(error) != "PERMISSION_DENIED":  # a publisher need not see the topic
                raise described(self._what, error, REJECTED_PUBLICATIONS) from None
        subscriber = await PubSubClient.create(connection, self._subscription, 1, self._decode)
        try:
            read = await subscriber.topic()
        finally:
            await subscriber.aclose()
        if read == path:
            raise UpstreamError(
                f"The dead-letter topic {self._topic!r} is the topic of subscription {self._subscription!r}.", hint="Name another topic."
            )
        self._path = path

    async def _send_request(self, entries: Sequence[_Entry]) -> list[Result]:
        """Send the messages of one request. If the service rejects it for one of them, each gets a request of its own."""
        request = {"topic": self._path, "messages": [entry.fields for entry in entries]}
        try:
            answer = await answer_to(self._publisher.publish(request=request, retry=None, timeout=ANSWER_SECONDS))
        except Exception as error:
            failure = described(self._what, error, REJECTED_PUBLICATIONS)
            if code_of(error) != "INVALID_ARGUMENT":
                return [failure] * len(entries)
            if len(entries) == 1:
                return [CopyRejected(str(failure))]
            return await send_requests([[entry] for entry in entries], self._send_request)
        if len(answer.message_ids) != len(entries):
            return [StreamError(f"{self._what}: the service did not confirm each message.")] * len(entries)
        return [None] * len(entries)

    def _entry(self, copy: DeadLetterCopy) -> _Entry:
        """Return the message of a copy. The ordering key is the key of its message."""
        value, is_original = copied_value(copy, self._decode)
        key = "" if copy.metadata is None else copy.metadata.key or ""
        has_key = len(key.encode()) <= MAX_KEY_BYTES
        own = origin_headers(copy, None if is_original else self._decode, has_key=has_key)
        attributes = attributes_of(message_headers(copy), own)
        size = len(value) + len(key.encode()) + sum(len(name.encode()) + len(text.encode()) for name, text in attributes.items())
        return _Entry({"data": value, "ordering_key": key if has_key else "", "attributes": attributes}, size)


def make_sender(upstream: PubSub) -> PubSubDeadLetterSender:
    """Return the sender to the dead-letter topic of an upstream."""
    description = upstream.description()
    if description.dead_letter_topic is None:
        raise UpstreamError(f"{upstream.stream_key()} has no dead-letter topic.")
    return PubSubDeadLetterSender(description.connection, description.dead_letter_topic, description.subscription, description.decode)


def attributes_of(headers: Sequence[tuple[str, bytes]], own: Sequence[tuple[str, bytes]]) -> dict[str, str]:
    """Return the attributes of a copy: those of its message, and its own. Long values are cut, and the last headers may be left out."""
    named = {_attribute_name(name): value for name, value in headers}
    room = MAX_ATTRIBUTES - len(own) - MARKERS
    whole = dict([*named.items()][:room]) | dict(own)
    short = {name: cut_value(name, value) for name, value in whole.items()}
    attributes = text_headers([*short.items()])
    cut = [name for name, value in short.items() if len(value) < len(whole[name])]
    if cut:
        attributes[CUT] = msgspec.json.encode(cut).decode()
    if len(named) > room:
        attributes[LEFT_OUT] = str(len(named) - room)
    return attributes


def cut_value(name: str, value: bytes) -> bytes:
    """Return a value that an attribute can have. Of the triggers, the first ones stay."""
    text = text_of(value)
    if text is None:
        return value[: MAX_VALUE_BYTES * 3 // 4]  # of base64
    if len(value) <= MAX_VALUE_BYTES:
        return value
    if name != TRIGGERS:
        return value[:MAX_VALUE_BYTES].decode(errors="ignore").encode()
    return msgspec.json.encode(first_names(msgspec.json.decode(value, type=list[str]), MAX_VALUE_BYTES))


def _attribute_name(name: str) -> str:
    """Return the name of an attribute. Those of CloudEvents get the prefix back with which they are sent."""
    return CLOUD_EVENTS_PREFIX + name.removeprefix(ATTRIBUTE_PREFIX) if name.startswith(ATTRIBUTE_PREFIX) else name


def _requests(entries: Sequence[_Entry]) -> Iterator[Sequence[_Entry]]:
    """Divide messages into requests, in their order. The service rejects a request with two ordering keys, or with and without one."""
    for _, run in groupby(entries, lambda entry: entry.fields["ordering_key"]):
        yield from batches([*run], lambda entry: entry.size, max_entries=MAX_MESSAGES, max_bytes=REQUEST_BYTES)


def _too_large(entry: _Entry) -> CopyRejected:
    return CopyRejected(f"It has {entry.size:,} bytes, and Pub/Sub takes up to {MAX_BYTES:,}.")
