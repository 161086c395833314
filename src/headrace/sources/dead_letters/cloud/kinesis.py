"""Copy dead letters to a stream of Kinesis. A record has no headers, so a copy is JSON with the dead letter and the value.

The service may fail on one record of a request and store the next. A request therefore has one record of a partition key: a later one would
overtake an earlier one that is sent again.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

import msgspec

from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.sources.aws import service_errors
from headrace.sources.aws.client import close_client, open_client
from headrace.sources.aws.service_errors import code_of
from headrace.sources.dead_letters.message import copied_value, message_headers, origin_fields, text_headers, text_of
from headrace.sources.dead_letters.requests import Result, batches, send_divided, send_requests
from headrace.sources.kinesis.client import SERVICE
from headrace.sources.kinesis.service_errors import INVALID_ARGUMENT, REJECTED
from headrace.sources.kinesis.upstream import Kinesis
from headrace.triggers.secrets import aget_connection

ANSWER_SECONDS: Final = 10.0
"""Time limit for the answer to one request."""
MAX_RECORDS: Final = 500
MAX_REQUEST_BYTES: Final = 512 * 1024
"""The bytes of the records of one request. The client writes a body of more than 1 MiB, which is in Base64, without a pause."""
MAX_KEY_CHARS: Final = 256
"""The characters of a partition key."""
RECORD_FAULTS: Final = frozenset({INVALID_ARGUMENT, "ValidationException"})
"""Codes of a request by which the service rejects one of its records for good."""
_ALLOW: Final = "Allow this user kinesis:PutRecords on the stream. If the stream is encrypted, allow kms:GenerateDataKey on its key too."
_REJECTED: Final[Mapping[str, str]] = {
    **REJECTED,
    "AccessDenied": _ALLOW,
    "AccessDeniedException": _ALLOW,
    "KMSAccessDeniedException": _ALLOW,
}


class _Entry(NamedTuple):
    """One record of a request: its data and its partition key."""

    data: bytes
    key: str


class KinesisDeadLetterSender(DeadLetterSender):
    """Sends copies to a stream, one request after the other."""

    def __init__(self, connection: str, stream: str, decode: str) -> None:
        self._connection = connection
        self._stream = stream
        self._decode = decode
        self._what = f"Copies to stream {stream!r} cannot be sent"
        self._stack = AsyncExitStack()
        self._client: Any = None

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        """Send the copies, up to the first request that must be repeated.

        Raises:
            UpstreamError: The connection is missing, or the client library is.
        """
        if self._client is None:
            connection = await aget_connection(self._connection)
            self._client = await open_client(SERVICE, connection, self._stack, answer_seconds=ANSWER_SECONDS, max_requests=1)
        entries = [self._entry(copy) for copy in copies]
        requests = batches(
            entries,
            lambda entry: len(entry.data) + len(entry.key.encode()),
            max_entries=MAX_RECORDS,
            max_bytes=MAX_REQUEST_BYTES,
            group_of=lambda entry: entry.key,
        )
        return await send_requests(requests, self._send_request)

    async def aclose(self) -> None:
        """Close the connections."""
        await close_client(self._stack)

    async def _send_request(self, entries: Sequence[_Entry]) -> list[Result]:
        return await send_divided(
            entries,
            self._put,
            lambda error: service_errors.described(self._what, error, _REJECTED),
            lambda error: code_of(error) in RECORD_FAULTS,
        )

    async def _put(self, entries: Sequence[_Entry]) -> list[Result]:
        """Send the records of one request. Raises the errors of the client."""
        records = [{"Data": entry.data, "PartitionKey": entry.key} for entry in entries]
        answer = await self._client.put_records(StreamName=self._stream, Records=records)
        results: list[Result] = [StreamError(f"{self._what}: the service did not confirm a record.")] * len(entries)
        for number, stored in enumerate(answer.get("Records", ())[: len(entries)]):
            if stored.get("ErrorCode"):
                text = f"{stored['ErrorCode']}: {stored.get('ErrorMessage') or 'no reason'}"
                results[number] = StreamError(f"A copy to stream {self._stream!r} was not sent: {text.rstrip('. ')}.")
            elif stored.get("SequenceNumber"):
                results[number] = None
        return results

    def _entry(self, copy: DeadLetterCopy) -> _Entry:
        """Return the record of a copy. Its partition key is that of the message, or the lane."""
        value, is_original = copied_value(copy, self._decode)
        fields = origin_fields(copy, None if is_original else self._decode, has_key=False)
        if headers := message_headers(copy):
            fields["headers"] = text_headers(headers)
        text = text_of(value)
        if text is None:
            fields["encoding"] = "base64"
        fields["value"] = b64encode(value).decode() if text is None else text
        origin = copy.dead_letter
        key = (None if copy.metadata is None else copy.metadata.key) or origin.lane or origin.stream
        return _Entry(msgspec.json.encode(fields), _partition_key(key))


def make_sender(upstream: Kinesis) -> KinesisDeadLetterSender:
    """Return the sender to the dead-letter stream of an upstream."""
    arguments = upstream.arguments()
    if arguments.dead_letter_stream is None:
        raise UpstreamError(f"{upstream.stream_key()} has no dead-letter stream.")
    return KinesisDeadLetterSender(arguments.connection, arguments.dead_letter_stream, arguments.decode)


def _partition_key(text: str) -> str:
    """Return a text that Kinesis takes as a partition key: the text itself, or its SHA-256."""
    return text if len(text) <= MAX_KEY_CHARS else hashlib.sha256(text.encode()).hexdigest()
