"""Read a queue of SQS as a shared stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import uuid4
from zlib import crc32

import structlog

from headrace.core.values.text import describe_error
from headrace.errors import HeadraceError
from headrace.sources.leases.leases import Lease
from headrace.sources.leases.producer import LeaseProducer
from headrace.sources.leases.service import Answer, Failures, LeaseService, LeaseSettings, Received
from headrace.sources.sqs.client import MAX_MESSAGES, SqsClient
from headrace.sources.sqs.envelopes import Step
from headrace.sources.sqs.message import decode_record_again, group_of, raw_events, undecoded_event
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection

log = structlog.get_logger(__name__)


class PollSettings(NamedTuple):
    """How a queue is polled. `lanes` is the number of lanes of a FIFO queue, or None for one per group."""

    queue: str
    decoding: Sequence[Step]
    visibility: int
    wait: int
    lanes: int | None

    @property
    def is_fifo(self) -> bool:
        """Whether the queue is a FIFO queue."""
        return self.queue.endswith(".fifo")


class QueueDescription(NamedTuple):
    """The arguments of an `SQS` upstream, as its producer needs them."""

    connection: str
    account: str | None
    polls: PollSettings
    dead_letter_queue: str | None = None


class SqsService:
    """One queue as a lease service: visibility timeouts are leases, deletions are acknowledgements."""

    max_messages: Final = MAX_MESSAGES

    def __init__(self, client: SqsClient, settings: PollSettings) -> None:
        self._client = client
        self._settings = settings

    def poll(self) -> Callable[[], Awaitable[Answer]]:
        """Return the request of one long poll."""
        # With the same id, a FIFO queue repeats an answer that was lost on its way.
        return partial(self._poll, uuid4().hex if self._settings.is_fifo else None)

    async def acknowledge(self, leases: Sequence[Lease]) -> Failures:
        """Delete messages."""
        return await self._client.delete(leases)

    async def set_lease(self, leases: Sequence[Lease], seconds: int) -> Failures:
        """Set the visibility timeout of messages."""
        return await self._client.set_visibility(leases, seconds)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _poll(self, attempt_id: str | None) -> Answer:
        messages = await self._client.receive(self._settings.visibility, self._settings.wait, attempt_id)
        return Answer([self._received(message) for message in messages], len(messages) == MAX_MESSAGES)

    def _received(self, message: Mapping[str, Any]) -> Received:
        group = group_of(message) if self._settings.is_fifo else None
        lane = self._lane(group)
        events = self._events(message, lane)
        return Received(message["MessageId"], message["ReceiptHandle"], group, lane, events)

    def _events(self, message: Mapping[str, Any], lane: str) -> Sequence[Message]:
        """Return the raw events of a message. It is malformed if its decoding fails in an unexpected way.

        Otherwise one message would end the stream at each of its deliveries, and the others of its answer would be delivered late.
        """
        decoding = self._settings.decoding
        try:
            return raw_events(message, lane, decoding)
        except (HeadraceError, MemoryError):  # not of the message: a decoder that cannot be imported, or the machine
            raise
        except Exception as error:
            reason = describe_error(error)
            log.error("message of a queue not decoded", queue=self._settings.queue, message=message["MessageId"], error=reason)
            return [undecoded_event(message, lane, decoding, f"The message cannot be decoded: {reason}.")]

    def _lane(self, group: str | None) -> str:
        """Return the lane of a message group, or the only lane of a standard queue."""
        settings = self._settings
        if group is None:
            return settings.queue
        return group if settings.lanes is None else f"{settings.queue}/{crc32(group.encode()) % settings.lanes}"


class SqsProducer(LeaseProducer):
    """The producer of an `SQS` upstream. A lane is a message group, or a standard queue."""

    def __init__(self, description: QueueDescription) -> None:
        super().__init__()
        self._description = description

    async def connect(self) -> tuple[LeaseService, LeaseSettings]:
        """Look up the queue. Raises as `open_stream` does."""
        connection, account, polls, _ = self._description
        client = await SqsClient.open(await aget_connection(connection), polls.queue, account, polls.wait)
        return SqsService(client, polls), LeaseSettings(polls.queue, polls.visibility, polls.visibility, polls.wait, polls.is_fifo)

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed record, decoded again."""
        return decode_record_again(message, self._description.polls.decoding)
