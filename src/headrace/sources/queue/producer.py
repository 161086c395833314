"""Read a queue as a shared stream. SQLite runs in a thread of its own, and senders wake the reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from operator import length_hint
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import HeadraceError, ResourceError, StreamEnded
from headrace.sources.group_commit import GroupCommit
from headrace.sources.outgoing import LaneNames
from headrace.sources.queue.file import make_queue_folder
from headrace.sources.queue.reader import LEASE_SECONDS, QueueMessage, QueueReader
from headrace.sources.queue.wakeup import WakeupPipe
from headrace.triggers.upstream import SharedStreamProducer

SAFETY: Final = 2.0
R = TypeVar("R")

log = structlog.get_logger(__name__)


class QueueProducer(SharedStreamProducer):
    """The producer of a `Queue`: yields `QueueMessage`s; `advance` deletes, in one commit for all waiting lanes.

    A failed message stays in the queue. It is redelivered, before later ones, when the queue is opened next.
    """

    def __init__(self, path: Path, lanes: LaneNames, *, make_folder: bool = False) -> None:
        self._path = path
        self._make_folder = make_folder
        self._lanes = lanes
        self._thread: ThreadPoolExecutor | None = None
        self._opening: asyncio.Future[QueueReader] | None = None
        self._reader: QueueReader | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._lost: HeadraceError | None = None
        self._news = asyncio.Event()
        self._fetched: Iterator[QueueMessage] = iter(())
        self._advances: GroupCommit[Sequence[AdvanceItem], None] = GroupCommit(self._commit)

    async def open_stream(self) -> AsyncIterator[tuple[QueueMessage, QueueMessage]]:
        """Take over the queue and yield its messages without end. Raises `UpstreamError` if this fails."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace queue")
        self._opening = asyncio.get_running_loop().run_in_executor(self._thread, self._open)
        # Shielded: if the task is cancelled during the takeover, `aclose` still has the queue and releases it.
        reader = self._reader = await asyncio.shield(self._opening)
        if self.log is not None:
            await self.log.check(reader.mark)
        self._renewing = asyncio.create_task(self._renew(reader), name="headrace queue lease")
        wakeup_pipe = self._listen()
        try:
            while True:
                self._news.clear()
                if wakeup_pipe is not None:
                    wakeup_pipe.drain()
                if self._lost is not None:
                    raise self._lost
                messages = await self._in_thread(reader.fetch)
                self._fetched = iter(messages)
                for message in self._fetched:
                    yield message, message
                if not messages:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(SAFETY):
                            await self._news.wait()
        finally:
            if wakeup_pipe is not None:
                asyncio.get_running_loop().remove_reader(wakeup_pipe.descriptor)
                wakeup_pipe.close()

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Delete the batch, in one commit with the batches of other lanes that wait.

        Rejected messages become dead letters, failed ones stay.
        """
        await self._advances.submit(batch)

    def get_advance_lane(self, broker_payload: QueueMessage) -> Hashable:
        """Return the message's lane."""
        return broker_payload.lane

    def get_position(self, broker_payload: QueueMessage) -> int | None:
        """Return the message's number in its lane, counted from 1."""
        return broker_payload.position

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the position of the lane's last message, as of the last look."""
        state = None if self._reader is None else self._reader.lanes.get(str(lane))
        return None if state is None else state.last

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the position before the lane's oldest message that is still in the queue, or None until the first is deleted."""
        state = None if self._reader is None else self._reader.lanes.get(str(lane))
        return None if state is None else state.committed

    def get_unread(self) -> int | None:
        """Return the number of messages that are not yielded, as of the last look, or None if too many lanes have some."""
        unread = None if self._reader is None else self._reader.unread
        return None if unread is None else unread + length_hint(self._fetched)

    async def aclose(self) -> None:
        """Release the queue for the next process."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        await self._advances.aclose()
        opening, self._opening, self._reader = self._opening, None, None
        if opening is not None and self._thread is not None:
            with suppress(HeadraceError):
                reader = await opening
                await asyncio.get_running_loop().run_in_executor(self._thread, reader.close)
            self._thread.shutdown(wait=False)

    def _open(self) -> QueueReader:
        if self._make_folder:
            make_queue_folder(self._path)
        return QueueReader(self._path, self._lanes)

    async def _commit(self, batches: list[Sequence[AdvanceItem]]) -> list[None]:
        reader = self._reader
        if reader is None:
            raise StreamEnded(f"The reading of {self._path} has ended.")
        mark = None if self.log is None else self.log.mark
        await self._in_thread(lambda: reader.commit(batches, mark))
        return [None] * len(batches)

    async def _renew(self, reader: QueueReader) -> None:
        """Renew the lease while the stream is open. A lost lease ends the stream."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            try:
                await self._in_thread(reader.renew)
            except ResourceError as error:
                log.warning("lease of a queue not renewed yet", path=str(self._path), error=str(error))
            except HeadraceError as error:
                self._lost = error
                self._news.set()
                return

    def _listen(self) -> WakeupPipe | None:
        """Open the pipe that senders write to. If that fails, only the look every `SAFETY` seconds finds messages."""
        try:
            wakeup_pipe = WakeupPipe(self._path)
        except OSError as error:
            log.warning("queue without wake-ups", path=str(self._path), error=str(error), looking_every_seconds=SAFETY)
            return None
        asyncio.get_running_loop().add_reader(wakeup_pipe.descriptor, self._on_wakeup, wakeup_pipe)
        return wakeup_pipe

    def _on_wakeup(self, wakeup_pipe: WakeupPipe) -> None:
        wakeup_pipe.drain()
        self._news.set()

    async def _in_thread(self, call: Callable[[], R]) -> R:
        thread: Any = self._thread
        return await asyncio.get_running_loop().run_in_executor(thread, call)
