"""Copy dead letters to a subject of NATS. Each copy has its own acknowledgement of JetStream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from headrace.errors import CopyRejected, HeadraceError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.sources.dead_letters.message import PREFIX, copied_headers, copied_value, text_headers
from headrace.sources.dead_letters.time_limit import time_limit
from headrace.sources.decoding import ATTRIBUTE_PREFIX
from headrace.sources.nats.client import NatsClient
from headrace.sources.nats.consumers import look_at_stream
from headrace.sources.nats.message import NATS_PREFIX
from headrace.sources.nats.producer import NatsArguments
from headrace.sources.nats.service_errors import ApiError, described
from headrace.sources.nats.subjects import overlap
from headrace.sources.nats.upstream import Nats
from headrace.triggers.secrets import aget_connection

SEND_SECONDS: Final = 30.0
"""Time limit of one call, in which the connection is opened and all copies are acknowledged."""
MESSAGE_ID: Final = "Nats-Msg-Id"
"""The header by which a stream recognises a repeated message, within its `duplicate_window`."""
SERVER_HEADERS: Final = "nats-"
"""Begins, in any case, the names of headers that JetStream follows, such as one that deletes all earlier messages."""
NAME_CHARS: Final = "!#$%&'*+-.^_`|~"
"""Characters of names of headers, beside letters and digits. The client sends no others, but reads them."""
REJECTED: Final = frozenset({10054, 10097})
"""Codes of JetStream for a message or headers that are too large for the stream."""
BLOCK_BYTES: Final = len(b"NATS/1.0\r\n\r\n")
"""Size of the headers of a message, without any header."""
LINE_BYTES: Final = len(b": \r\n")

HINT: Final = "Does a stream listen to the subject, and does it confirm (without no_ack)? Is the server running?"
CREATE_HINT: Final = "Create one, or correct the subject or the account of the connection. Headrace creates no streams."
CIRCLE_HINT: Final = (
    "Each dead letter would be read again as a message. Name a subject of another stream, or narrow the subjects that are read."
)
_LINE: Final = re.compile(r"[^\x00-\x1f\x7f]*")


class NatsDeadLetterSender(DeadLetterSender):
    """Sends copies to a subject that a stream listens to, all of one call without a pause."""

    def __init__(self, arguments: NatsArguments, subject: str) -> None:
        self._arguments = arguments
        self._subject = subject
        self._target = f"subject {subject!r}"
        self._client: NatsClient | None = None
        self._is_open = False
        self._sources: Sequence[str] = ()

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        """Send the copies and wait for the acknowledgement of each.

        Raises:
            HeadraceError: No stream listens to the subject, or the server refuses the connection or does not answer.
        """
        async with time_limit(SEND_SECONDS, self._target, HINT):
            client = self._client = self._client or NatsClient()
            if not self._is_open:
                await self._open(client)
            first: list[HeadraceError | None] = []
            if self._sources:  # only the acknowledgement of a copy names its stream
                first = [await self._send(client, copies[0])]
                if isinstance(first[0], UpstreamError):
                    raise first[0]
            # The client puts a message into its buffer before it first waits. So the messages are sent in this order.
            return first + await asyncio.gather(*(self._send(client, copy) for copy in copies[len(first) :]))

    async def aclose(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()

    async def _open(self, client: NatsClient) -> None:
        await client.open(await aget_connection(self._arguments.connection))
        stream = await look_at_stream(client, self._arguments.consumers.stream)
        if self._is_in(stream.subjects) and self._is_in(self._arguments.consumers.subjects):
            raise self._circle()
        self._sources = [
            one.stream
            for one in stream.sources
            if self._is_in(one.subjects) and (one.is_transformed or self._is_in(self._arguments.consumers.subjects))
        ]
        self._is_open = True

    def _is_in(self, subjects: Iterable[str]) -> bool:
        return any(overlap(self._subject, one) for one in subjects)

    def _circle(self) -> UpstreamError:
        return UpstreamError(
            f"The dead-letter {self._target} is read by the upstream itself, in stream {self._arguments.consumers.stream!r}.",
            hint=CIRCLE_HINT,
        )

    async def _send(self, client: NatsClient, copy: DeadLetterCopy) -> HeadraceError | None:
        value, is_original = copied_value(copy, self._arguments.decode)
        headers = self._headers(copy, is_original=is_original)
        size = len(value) + _block_size(headers)
        if size > client.max_payload:
            return CopyRejected(f"The server refuses it: {size:,} bytes with its headers, at most {client.max_payload:,} (max_payload).")
        what = f"A copy to {self._target} was not sent"
        try:
            answer = await client.store(what, self._subject, value, headers)
        except HeadraceError as error:
            return error
        if answer is None:
            return UpstreamError(f"No stream listens to the dead-letter {self._target}.", hint=CREATE_HINT)
        if "error" in answer:
            failure = ApiError(answer["error"])
            return CopyRejected(f"The stream refuses it: {failure}.") if failure.code in REJECTED else described(what, failure)
        return self._circle() if answer["stream"] in self._sources else None

    def _headers(self, copy: DeadLetterCopy, *, is_original: bool) -> Mapping[str, str]:
        decode = self._arguments.decode
        pairs = copied_headers(copy, None if is_original else decode, has_key=False)
        texts = text_headers([(_header_name(name, decode), value) for name, value in pairs], _is_line)
        return texts | {MESSAGE_ID: f"{copy.dead_letter.id}/{copy.dead_letter.number}"}


def _header_name(name: str, decode: str) -> str:
    """Return a name as it was before `raw_event` read it, or with a prefix if JetStream follows the header."""
    if decode == "cloudevents" and name.startswith(ATTRIBUTE_PREFIX):
        name = NATS_PREFIX + name[len(ATTRIBUTE_PREFIX) :]
    name = quote(name, safe=NAME_CHARS)
    return PREFIX + name if name.lower().startswith(SERVER_HEADERS) else name


def _is_line(text: str) -> bool:
    return text == text.strip() and _LINE.fullmatch(text) is not None


def _block_size(headers: Mapping[str, str]) -> int:
    return BLOCK_BYTES + sum(len(name.encode()) + len(text.encode()) + LINE_BYTES for name, text in headers.items())


def make_sender(upstream: Nats) -> NatsDeadLetterSender:
    """Return the sender to the dead-letter subject of an upstream."""
    arguments = upstream.arguments()
    if arguments.dead_letter_subject is None:
        raise UpstreamError(f"{upstream.stream_key()} has no dead-letter subject.")
    return NatsDeadLetterSender(arguments, arguments.dead_letter_subject)
