"""Notifications of a bucket in a queue that leases its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import HeadraceError, MalformedEvent
from headrace.sources.leases.leases import Part
from headrace.sources.leases.producer import LeaseProducer
from headrace.sources.objects.bucket import Bucket, Missing
from headrace.sources.objects.location import Selection, StoredObject
from headrace.sources.objects.notified import Parser
from headrace.sources.objects.tracker import TrackedObject, Tracker
from headrace.triggers.raw_event import Message
from headrace.triggers.upstream import name_connection

PROBLEM: Final = "notifications"
_ANSWERED: Final = AdvanceOutcome(0, 0)
_FAILED: Final = AdvanceOutcome(0, 1)

log = structlog.get_logger(__name__)


class Notifications:
    """The notifications of one opening. A notification is deleted when its object is finished, or at once if it names none that is new."""

    def __init__(self, producer: LeaseProducer, parse: Parser, bucket: Bucket, name: str, selection: Selection, tracker: Tracker) -> None:
        self._producer = producer
        self._parse = parse
        self._bucket = bucket
        self._name = name
        self._selection = selection
        self._tracker = tracker
        self._stream = producer.open_stream()
        self._deletions: set[asyncio.Task[None]] = set()
        self._problems: dict[str, str] = {}

    async def next(self) -> TrackedObject:
        """Wait for the notification of a new object."""
        while True:
            message, part = await self._receive()
            try:
                stored = await self._object(message)
            except MalformedEvent as error:
                if PROBLEM not in self._problems:
                    log.warning("message without a notification of the bucket left in the queue", error=str(error))
                self._problems[PROBLEM] = f"Messages stay in the queue: {error}"
                self._answer_soon([part], _FAILED)
                continue
            tracked, waits = (None, False) if stored is None else self._tracker.notify(stored, part)
            if not waits:
                self._answer_soon([part], _ANSWERED)
            if tracked is not None:
                return tracked

    async def _receive(self) -> tuple[Message, Part]:
        """Return the next message. An error names the connection of the queue, which may be another one than that of the bucket."""
        try:
            return await anext(self._stream)
        except HeadraceError as error:
            name_connection(error, self._producer)
            raise

    async def delete(self, parts: Sequence[Part]) -> None:
        """Delete the notifications of finished objects. Raises as `LeaseProducer.advance` does."""
        if parts:
            await self._producer.advance([AdvanceItem(part, _ANSWERED) for part in parts])

    def delete_soon(self, parts: Sequence[Part]) -> None:
        """Delete the notifications of a missing object. If that fails, they come again."""
        if parts:
            self._answer_soon(parts, _ANSWERED)

    def errors(self) -> Mapping[str, str]:
        """Return what cannot be read now."""
        return self._problems | dict(self._producer.get_errors())

    async def aclose(self) -> None:
        """Make all notifications visible whose object is not finished.

        A task that is cancelled, also before this call, waits for nothing: the polls and the extensions end, and the client is closed.
        Notifications whose object is not finished come again when their leases end.
        """
        try:
            if self._deletions and not _is_cancelled():
                await asyncio.wait(self._deletions)
        finally:
            await self._close_queue()

    async def _close_queue(self) -> None:
        if _is_cancelled():
            for task in self._deletions:
                task.cancel()
            # The timeout lets the producer stop its receiver, and cancels it as soon as it waits.
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await self._producer.aclose()
            return
        try:
            if hasattr(self._stream, "aclose"):
                await self._stream.aclose()
        finally:
            await self._producer.aclose()

    async def _object(self, message: Message) -> StoredObject | None:
        """Return the object that a notification names, or None if the upstream does not read it. Raises `MalformedEvent`."""
        if message.malformed is not None:
            raise MalformedEvent(message.malformed)
        notified = self._parse(message.data)
        if notified.bucket != self._name:
            raise MalformedEvent(f"The notification is of the bucket {notified.bucket!r}, not {self._name!r}.")
        if not notified.is_created or not self._selection.has(notified.key):
            return None
        if notified.etag:
            return notified.stored
        try:
            return await self._bucket.head(notified.key, notified.version)
        except Missing:
            return None

    def _answer_soon(self, parts: Sequence[Part], outcome: AdvanceOutcome) -> None:
        task = asyncio.create_task(self._answer(parts, outcome), name="headrace notifications")
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)

    async def _answer(self, parts: Sequence[Part], outcome: AdvanceOutcome) -> None:
        try:
            await self._producer.advance([AdvanceItem(part, outcome) for part in parts])
        except HeadraceError as error:
            log.warning("notifications not deleted", notifications=len(parts), error=str(error))
            # A failed answer abandons the leases, without a request. The messages come again when these end, and are deleted then.
            with suppress(HeadraceError):
                await self._producer.advance([AdvanceItem(part, _FAILED) for part in parts])


def _is_cancelled() -> bool:
    """Return whether the task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
