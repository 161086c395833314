"""The queue of one endpoint, to which accepted messages are appended durably.

Requests that arrive during a commit share the next one. The queue is opened again after it was moved or deleted.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

import structlog

from headrace.errors import HeadraceError, ResourceError, StorageFull, UsageError
from headrace.sources.outgoing import OutgoingMessage
from headrace.sources.queue.file import make_queue_folder
from headrace.sources.queue.writer import QueueWriter

CHECK_SECONDS: Final = 0.5
"""Interval of looks at the size of the queue and the free space of its disk."""
MIN_FREE_BYTES: Final = 64 * 1024 * 1024
"""Space that is left on the disk, so that the reader of the queue can still delete messages."""

log = structlog.get_logger(__name__)


class InboxFull(ResourceError):
    """Too many messages in the queue are unread."""


class Inbox:
    """Appends messages to the queue at `path`, until its unread messages have more than `max_bytes`."""

    def __init__(self, path: Path, *, lanes: int | None, max_bytes: int, min_free_bytes: int = MIN_FREE_BYTES) -> None:
        self._path = path
        self._lanes = lanes
        self._max_bytes = max_bytes
        self._min_free_bytes = min_free_bytes
        self._writer: QueueWriter | None = None
        self._opening = asyncio.Lock()
        self._checked = -CHECK_SECONDS
        self._full: ResourceError | None = None

    async def append(self, messages: list[OutgoingMessage]) -> None:
        """Append the messages, all or none. They are on the disk when this returns.

        Raises:
            ResourceError: The queue takes no messages now.
            UsageError: The queue cannot be used.
        """
        await self.check()
        if not messages:
            return
        try:
            await (await self._open()).append(messages)
        except UsageError as error:  # nothing was written
            log.warning("queue opened again", path=str(self._path), error=str(error))
            await self.close()
            await (await self._open()).append(messages)

    async def check(self) -> None:
        """Raise as `append` does if the queue takes no messages now."""
        writer = await self._open()
        if monotonic() - self._checked >= CHECK_SECONDS:
            self._checked = monotonic()
            self._full = await asyncio.to_thread(self._why_full, writer)
        if self._full is not None:
            raise self._full

    async def close(self) -> None:
        """Close the queue after the running commit."""
        async with self._opening:
            writer, self._writer = self._writer, None
            if writer is not None:
                await writer.__aexit__(None, None, None)

    async def _open(self) -> QueueWriter:
        if self._writer is not None:
            return self._writer
        async with self._opening:
            if self._writer is None:
                await asyncio.to_thread(make_queue_folder, self._path)
                writer = QueueWriter(self._path, lanes=self._lanes)
                await writer.__aenter__()
                self._writer = writer
            return self._writer

    def _why_full(self, writer: QueueWriter) -> ResourceError | None:
        with suppress(OSError):
            disk = os.statvfs(self._path.parent)
            if disk.f_bavail * disk.f_frsize < self._min_free_bytes:
                return StorageFull("The disk of the receiver is full.")
        try:
            full = writer.has_more_than(self._max_bytes)
        except HeadraceError:
            return None  # the next append names the reason
        return InboxFull("Too many messages are waiting.") if full else None
