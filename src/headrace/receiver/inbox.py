"""The queue of one endpoint, to which accepted messages are appended durably.

Requests that arrive during a commit share the next one. The queue is opened again after it was moved or deleted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, TypeVar

import structlog

from headrace.errors import HeadraceError, ResourceError, StorageBusy, StorageFull, UsageError
from headrace.sources.outgoing import OutgoingMessage
from headrace.sources.queue.file import make_queue_folder
from headrace.sources.queue.writer import QueueWriter

CHECK_SECONDS: Final = 0.5
"""Interval of looks at the size of the queue and the free space of its disk."""
LONG_CHECK_SECONDS: Final = CHECK_SECONDS / 10
"""Time of a look from which the interval grows with it: a look reads all unread messages if the file has more than the limit."""
BUSY_SECONDS: Final = 5.0
"""Time that a request waits for other processes that use the queue. Senders wait for a response for about 10 s."""
BUSY_HEALTH_SECONDS: Final = 30.0
"""Time after a busy queue during which the endpoint is not healthy, unless messages were stored since."""

R = TypeVar("R")
MIN_FREE_BYTES: Final = 64 * 1024 * 1024
"""Space that is left on the disk, so that the reader of the queue can still delete messages."""

log = structlog.get_logger(__name__)


class InboxFull(ResourceError):
    """Too many messages in the queue are unread."""


class _Rejection(NamedTuple):
    """Why messages are refused: the exception to raise, and its text."""

    kind: type[ResourceError]
    reason: str


class Inbox:
    """Appends messages to the queue at `path`, until its unread messages have more than `max_bytes`."""

    def __init__(self, path: Path, *, lanes: int | None, max_bytes: int, min_free_bytes: int = MIN_FREE_BYTES) -> None:
        self._path = path
        self._lanes = lanes
        self._max_bytes = max_bytes
        self._min_free_bytes = min_free_bytes
        self._writer: QueueWriter | None = None
        self._opening = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace inbox")  # a busy queue must not take the threads of others
        self._checking = False
        self._next_check = 0.0
        self._rejection: _Rejection | None = None
        self._busy_until = 0.0

    async def append(self, messages: list[OutgoingMessage]) -> None:
        """Append the messages, all or none. They are on the disk when this returns.

        Raises:
            ResourceError: The queue takes no messages now.
            UsageError: The queue cannot be used.
        """
        await self._require_room()
        if not messages:
            return
        try:
            try:
                await (await self._open()).append(messages)
            except UsageError as error:  # nothing was written
                log.warning("queue opened again", path=str(self._path), error=str(error))
                await self.close()
                await (await self._open()).append(messages)
        except StorageBusy:
            self._busy_until = monotonic() + BUSY_HEALTH_SECONDS
            raise
        self._busy_until = 0.0

    async def check(self) -> None:
        """Raise as `append` does if the queue takes no messages now, or was busy a short time ago."""
        await self._require_room()
        if monotonic() < self._busy_until:
            raise self._busy()

    async def close(self) -> None:
        """Close the queue after the running commit."""
        async with self._opening:
            writer, self._writer = self._writer, None
            if writer is not None:
                await writer.__aexit__(None, None, None)

    async def _require_room(self) -> None:
        writer = await self._open()
        if not self._checking and monotonic() >= self._next_check:
            self._checking, begun = True, monotonic()
            try:
                self._rejection = await self._in_thread(lambda: self._look(writer))
            finally:
                took = monotonic() - begun
                self._checking, self._next_check = False, begun + took + CHECK_SECONDS * max(1.0, took / LONG_CHECK_SECONDS)
        if self._rejection is not None:
            # A new exception: one that is raised again keeps the frames of all requests before, and so their bodies.
            raise self._rejection.kind(self._rejection.reason)

    async def _open(self) -> QueueWriter:
        if self._writer is not None:
            return self._writer
        async with self._turn_to_open():
            if self._writer is None:
                await self._in_thread(lambda: make_queue_folder(self._path))
                writer = QueueWriter(self._path, lanes=self._lanes, busy_seconds=BUSY_SECONDS)
                await writer.__aenter__()
                self._writer = writer
            return self._writer

    @asynccontextmanager
    async def _turn_to_open(self) -> AsyncIterator[None]:
        """Hold the lock of openings. Requests that wait for a slow one have a limit too."""
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await self._opening.acquire()
        except TimeoutError:
            raise self._busy() from None
        try:
            yield
        finally:
            self._opening.release()

    def _busy(self) -> StorageBusy:
        return StorageBusy(f"The queue {self._path} does not answer.", hint="Continue or end the process that reads the queue.")

    async def _in_thread(self, call: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _look(self, writer: QueueWriter) -> _Rejection | None:
        with suppress(OSError):
            disk = os.statvfs(self._path.parent)
            if disk.f_bavail * disk.f_frsize < self._min_free_bytes:
                return _Rejection(StorageFull, "The disk of the receiver is full.")
        try:
            full = writer.has_more_than(self._max_bytes)
        except HeadraceError:
            return None  # the next append names the reason
        return _Rejection(InboxFull, "Too many messages are waiting.") if full else None
