"""Copy dead letters to a queue of SQS, in batches. Each entry of an answer has its own result.

The service may fail on one entry of a request and store the next. A request to a FIFO queue therefore has one entry of a message group: a
later one would overtake an earlier one that is sent again.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, NamedTuple

from headrace.errors import CopyRejected, HeadraceError, StreamError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.sources.aws.client import close_client, open_client
from headrace.sources.aws.service_errors import code_of
from headrace.sources.dead_letters.message import CopiedValue, copied_value, message_headers, origin_fields, text_headers, text_of
from headrace.sources.dead_letters.requests import Result, batches, send_divided, send_requests
from headrace.sources.sqs.client import MAX_MESSAGES, SERVICE
from headrace.sources.sqs.envelopes import Step, removed_envelopes
from headrace.sources.sqs.service_errors import REJECTED_SENDS, described_send, failure_text
from headrace.sources.sqs.upstream import SQS
from headrace.triggers.secrets import aget_connection

ANSWER_SECONDS: Final = 10.0
"""Time limit for the answer to one request."""
MAX_BYTES: Final = 1_048_576
"""The most bytes of one message, and of all messages of one request, with their attributes."""
MAX_ATTRIBUTES: Final = 10
ATTRIBUTE: Final = "headrace-dead-letter"
"""The attribute with the dead letter, as JSON."""

MESSAGE_FAULTS: Final = frozenset(
    {
        "AWS.SimpleQueueService.BatchRequestTooLong",
        "BatchRequestTooLong",
        "InvalidAttributeValue",
        "InvalidMessageContents",
        "InvalidParameterValue",
    }
)
"""Codes of a request by which the service rejects one of its messages for good."""
TRANSIENT: Final = frozenset({"KmsThrottled", "OverLimit", "RequestThrottled", "Throttling", "ThrottlingException"})
"""Codes of a fault of the sender after which another attempt may succeed."""

_TEXT: Final = re.compile(r"[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")
"""The text that a body or an attribute may have."""
_ATTRIBUTE_NAME: Final = re.compile(r"(?!(?i:aws|amazon)\.)(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
_ID: Final = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\[\\\]^_`{|}~-]{1,128}")
"""A message group, or a deduplication id."""


class _Entry(NamedTuple):
    """One message of a request, its bytes as the service counts them, and its message group if the queue is a FIFO queue."""

    fields: Mapping[str, Any]
    size: int
    group: str | None


class SqsDeadLetterSender(DeadLetterSender):
    """Sends copies to a queue, one request after the other."""

    def __init__(self, connection: str, queue: str, account: str | None, decoding: Sequence[Step]) -> None:
        self._connection = connection
        self._queue = queue
        self._account = account
        self._decoding = decoding
        self._what = f"Copies to queue {queue!r} cannot be sent"
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._url = ""

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        """Send the copies, up to the first request that must be repeated.

        Raises:
            HeadraceError: The queue does not exist, or the service refuses the connection or does not answer.
        """
        if not self._url:
            await self._open()
        entries = [self._entry(copy) for copy in copies]
        rejections = [_rejection(entry) for entry in entries]
        accepted = [entry for entry, rejection in zip(entries, rejections, strict=True) if rejection is None]
        requests = batches(
            accepted, lambda entry: entry.size, max_entries=MAX_MESSAGES, max_bytes=MAX_BYTES, group_of=lambda entry: entry.group
        )
        results = iter(await send_requests(requests, self._send_request))
        return [rejection or next(results) for rejection in rejections]

    async def aclose(self) -> None:
        """Close the connections."""
        await close_client(self._stack)

    async def _open(self) -> None:
        """Connect and look up the queue."""
        if self._client is None:
            connection = await aget_connection(self._connection)
            self._client = await open_client(SERVICE, connection, self._stack, answer_seconds=ANSWER_SECONDS, max_requests=1)
        owner = {} if self._account is None else {"QueueOwnerAWSAccountId": self._account}
        try:
            self._url = str((await self._client.get_queue_url(QueueName=self._queue, **owner))["QueueUrl"])
        except Exception as error:
            raise described_send(self._what, error) from None

    async def _send_request(self, entries: Sequence[_Entry]) -> list[Result]:
        return await send_divided(
            entries, self._send_batch, partial(described_send, self._what), lambda error: code_of(error) in MESSAGE_FAULTS
        )

    async def _send_batch(self, entries: Sequence[_Entry]) -> list[Result]:
        """Send the entries of one request. Raises the errors of the client."""
        requested = [{**entry.fields, "Id": str(number)} for number, entry in enumerate(entries)]
        answer = await self._client.send_message_batch(QueueUrl=self._url, Entries=requested)
        results: list[Result] = [StreamError(f"{self._what}: the service did not confirm a message.")] * len(entries)
        for stored in answer.get("Successful", ()):
            results[int(stored["Id"])] = None
        for failure in answer.get("Failed", ()):
            results[int(failure["Id"])] = failure_of(self._queue, failure)
        return results

    def _entry(self, copy: DeadLetterCopy) -> _Entry:
        """Return the message of a copy: its attributes are those of its message as far as there is room, and the dead letter as JSON."""
        value, is_original = _value(copy, self._decoding)
        body, encoding = _body(value)
        attributes: dict[str, dict[str, Any]] = {}
        others: dict[str, bytes] = {}
        for name, content in dict(message_headers(copy)).items():
            if content and len(attributes) < MAX_ATTRIBUTES - 1 and _ATTRIBUTE_NAME.fullmatch(name):
                attributes[name] = _attribute(content)
            else:
                others[name] = content
        fields = origin_fields(copy, None if is_original else ", ".join(self._decoding), has_key=False)
        if encoding is not None:
            fields["encoding"] = encoding
        if others:
            fields["headers"] = text_headers([*others.items()])
        attributes[ATTRIBUTE] = {"DataType": "String", "StringValue": json.dumps(fields, separators=(",", ":"))}
        origin = copy.dead_letter
        group, ids = None, {}
        if self._queue.endswith(".fifo"):
            # The suffix of a lane changes whenever its queue is opened.
            group = _id(origin.stream if origin.lane is None else origin.lane.rpartition("@")[0] or origin.lane)
            ids = {"MessageGroupId": group, "MessageDeduplicationId": _id(f"{origin.id}/{origin.number}")}
        size = len(body.encode()) + sum(_size(name, attribute) for name, attribute in attributes.items())
        return _Entry({"MessageBody": body, "MessageAttributes": attributes, **ids}, size, group)


def make_sender(upstream: SQS) -> SqsDeadLetterSender:
    """Return the sender to the dead-letter queue of an upstream."""
    queue = upstream.description()
    if queue.dead_letter_queue is None:
        raise UpstreamError(f"{upstream.stream_key()} has no dead-letter queue.")
    return SqsDeadLetterSender(queue.connection, queue.dead_letter_queue, queue.account, queue.polls.decoding)


def failure_of(queue: str, failure: Mapping[str, Any]) -> HeadraceError:
    """Return the error of one failed entry of an answer: `CopyRejected` for a fault of its message."""
    code, text = str(failure.get("Code")), failure_text(failure).rstrip(". ")
    what = f"A copy to queue {queue!r} was not sent"
    if code in REJECTED_SENDS:
        return UpstreamError(f"{what}: {text}.", hint=REJECTED_SENDS[code])
    if not failure.get("SenderFault") or code in TRANSIENT or code.lower().startswith("kms"):
        return StreamError(f"{what}: {text}.")
    return CopyRejected(f"The queue {queue!r} rejects it: {text}.")


def _rejection(entry: _Entry) -> CopyRejected | None:
    """Return why the service never takes a message, or None."""
    if entry.size > MAX_BYTES:
        return CopyRejected(f"It has {entry.size:,} bytes, and SQS takes up to {MAX_BYTES:,}.")
    return None if entry.fields["MessageBody"] else CopyRejected("It has no bytes, and SQS takes no empty message.")


def _value(copy: DeadLetterCopy, decoding: Sequence[Step]) -> CopiedValue:
    """Return the body of the message, or the content of its envelopes."""
    headers = () if copy.metadata is None else copy.metadata.headers
    if len(decoding) > 1 or removed_envelopes(headers) & {*decoding}:
        return CopiedValue(copy.data, False)
    return copied_value(copy, decoding[0])


def _body(value: bytes) -> tuple[str, str | None]:
    """Return the body of a message, and its encoding if that is not the text itself."""
    text = text_of(value)
    return (b64encode(value).decode(), "base64") if text is None or not _TEXT.fullmatch(text) else (text, None)


def _attribute(value: bytes) -> dict[str, Any]:
    text = text_of(value)
    if text is None or not _TEXT.fullmatch(text):
        return {"DataType": "Binary", "BinaryValue": value}
    return {"DataType": "String", "StringValue": text}


def _size(name: str, attribute: Mapping[str, Any]) -> int:
    value = attribute.get("BinaryValue") or attribute["StringValue"].encode()
    return len(name) + len(attribute["DataType"]) + len(value)


def _id(text: str) -> str:
    """Return a text that SQS takes as an id: the text itself, or its SHA-256."""
    return text if _ID.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()
