"""Read a queue that leases its messages as a shared stream."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import NamedTuple

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamError
from headrace.sources.leases.acknowledgements import Acknowledgements
from headrace.sources.leases.extensions import LeaseExtensions
from headrace.sources.leases.leases import Leases, Part
from headrace.sources.leases.receiver import Receiver
from headrace.sources.leases.service import LeaseService, LeaseSettings
from headrace.triggers.raw_event import Message
from headrace.triggers.upstream import SharedStreamProducer


class _Opened(NamedTuple):
    """The parts of an open stream."""

    service: LeaseService
    leases: Leases
    receiver: Receiver
    acknowledgements: Acknowledgements
    extensions: LeaseExtensions
    extending: asyncio.Task[None]


class LeaseProducer(SharedStreamProducer):
    """The producer of an upstream that leases messages: yields `Message`s. `advance` acknowledges those with all records answered.

    A failed message is not acknowledged, nor any later one of its group if the queue is ordered. They come again when their leases end, or
    when the upstream is opened next.
    """

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}
        self._opened: _Opened | None = None

    @abstractmethod
    async def connect(self) -> tuple[LeaseService, LeaseSettings]:
        """Connect to the service and look up the queue. Raises as `open_stream` does."""

    async def open_stream(self) -> AsyncIterator[tuple[Message, Part]]:
        """Look up the queue and yield the records of its messages without end.

        Raises:
            UpstreamError: The connection, the queue or a permission is missing, or the client library is.
            StreamError: The service does not answer.
        """
        receiver = (await self._open()).receiver
        try:
            while True:
                yield await receiver.next()
        finally:
            receiver.stop()

    async def _open(self) -> _Opened:
        service, settings = await self.connect()
        leases = Leases(settings.first, settings.lease, is_ordered=settings.is_ordered)
        acknowledgements = Acknowledgements(service, leases)
        extensions = LeaseExtensions(service, leases, settings, self._problems)
        receiver = Receiver(service, leases, acknowledgements, settings, self._problems)
        extending = asyncio.create_task(extensions.run(), name="headrace lease extensions")
        extending.add_done_callback(lambda task: _report(task, receiver))
        self._opened = _Opened(service, leases, receiver, acknowledgements, extensions, extending)
        receiver.start()
        return self._opened

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Acknowledge the answered messages of the batch, together with those of other lanes that wait.

        Raises:
            StreamError: The service does not answer, or refused some messages for now.
            UpstreamError: The credentials or permissions do not allow it.
        """
        opened = self._opened
        if opened is None:
            raise StreamError("The reading of the queue has not begun.")
        await opened.acknowledgements.acknowledge(opened.leases.answer(batch))

    def get_advance_lane(self, broker_payload: Part) -> Hashable:
        """Return the lane of the message."""
        return broker_payload.lease.lane

    def get_errors(self) -> Mapping[str, str]:
        """Return why the queue cannot be read or its messages cannot be held now."""
        return dict(self._problems)

    async def aclose(self) -> None:
        """Wait for the end of the running polls, then end the leases of all messages that were not acknowledged."""
        opened = self._opened
        if opened is None:
            return
        try:
            await opened.receiver.aclose()
            await opened.acknowledgements.aclose()
            await _end(opened.extending)
            await opened.extensions.release()
        finally:
            opened.extending.cancel()
            await opened.service.aclose()


def _report(task: asyncio.Task[None], receiver: Receiver) -> None:
    """End the stream if the task that extends its leases has failed."""
    if not task.cancelled() and isinstance(error := task.exception(), Exception):
        receiver.fail(error)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
