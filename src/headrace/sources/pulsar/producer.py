"""Read topics of Pulsar as a shared stream."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamError, UpstreamFenced
from headrace.sources.cancellation import check_cancelled
from headrace.sources.declared_decoder import decoder_of
from headrace.sources.decoding import decode_again
from headrace.sources.pulsar.acknowledgements import Acknowledgements
from headrace.sources.pulsar.admin import AdminApi
from headrace.sources.pulsar.client import PulsarClient
from headrace.sources.pulsar.lane import Delivered
from headrace.sources.pulsar.reader import Reader
from headrace.sources.pulsar.settings import settings_of
from headrace.sources.pulsar.subscriptions import Description, Subscriptions
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection
from headrace.triggers.upstream import SharedStreamProducer


class PulsarProducer(SharedStreamProducer):
    """The producer of a `Pulsar` upstream. `advance` acknowledges the last message of a batch and waits until the broker has received it.

    A failed message is not acknowledged, nor any later one of its partition. They are read again when the upstream is opened next.
    """

    def __init__(self, description: Description) -> None:
        self._description = description
        self._client: PulsarClient | None = None
        self._admin: AdminApi | None = None
        self._reader: Reader | None = None

    async def open_stream(self) -> AsyncIterator[tuple[Message, Delivered]]:
        """Subscribe to all partitions and yield their messages without end.

        Raises:
            UpstreamError: The connection, a topic or a permission is missing, messages may be lost, or the client library is missing.
            UpstreamFenced: Another reader has taken over.
            StreamError: The broker or the admin API does not answer, or the subscription has another consumer.
        """
        reader = await self._open()
        try:
            while True:
                check_cancelled()
                yield await reader.next()
        finally:
            reader.stop()

    async def _open(self) -> Reader:
        description = self._description
        settings = settings_of(await aget_connection(description.connection))
        admin = self._admin = AdminApi(settings)
        await admin.open()
        client = self._client = PulsarClient(settings)
        await client.open()
        name = f"headrace-{secrets.token_hex(8)}"
        was_read = self.log is not None and self.log.mark.receipts > 0
        reader = self._reader = Reader(
            client,
            description,
            Subscriptions(admin, description, was_read=was_read),
            Acknowledgements(admin, description.subscription, name),
        )
        await reader.start(name)
        return reader

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Acknowledge the batch up to its first failed message.

        Raises:
            UpstreamFenced: Another reader has taken over.
            StreamEnded: The broker has not received the acknowledgement: the connection was lost.
            StreamError: The admin API does not answer.
        """
        reader = self._reader
        if reader is None:
            raise StreamError("The reading of Pulsar has not begun.")
        if isinstance(reader.failure, UpstreamFenced):
            raise reader.failure
        lane = batch[0].broker_payload.lane
        target = lane.answer(batch)
        if target is not None:
            await reader.acknowledge(target)

    def get_advance_lane(self, broker_payload: Delivered) -> Hashable:
        """Return the topic of the partition."""
        return broker_payload.lane.name

    def get_errors(self) -> Mapping[str, str]:
        """Return the topics whose subscription was missing, and the partitions with expired messages."""
        return {} if self._reader is None else dict(self._reader.problems)

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed message, decoded again."""
        return decode_again(decoder_of(self._description.decode), message)

    async def aclose(self) -> None:
        """Close the consumers and all connections. The next reader can start at once."""
        try:
            if self._reader is not None:
                await self._reader.aclose()
        finally:
            try:
                if self._client is not None:
                    await self._client.aclose()
            finally:
                if self._admin is not None:
                    await self._admin.aclose()
