"""The opening of one stream: lock it, read its progress, and decide where its reading begins."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import structlog

from headrace.errors import UpstreamError
from headrace.sources.declared_decoder import Decoding
from headrace.sources.rabbitmq.client import RabbitConnection
from headrace.sources.rabbitmq.streams.lane import Lane
from headrace.sources.rabbitmq.streams.progress import Names, OffsetNote, Progress
from headrace.sources.rabbitmq.streams.reader import check_stream, last_offset
from headrace.sources.rabbitmq.streams.start import NO_OFFSET, Start
from headrace.triggers.stream_log import LogMark

BIRTHMARK_BYTES: Final = 6

log = structlog.get_logger(__name__)


class Description(NamedTuple):
    """The arguments of a `RabbitMQStreams` upstream, as its producer needs them."""

    streams: Sequence[str]
    group: str
    connection: str
    start: Start
    decode: Decoding
    prefetch: int
    dead_letter_queue: str | None = None


class Opening:
    """One stream of one opening. `note` is that of the last reader, `problem` what an operator should know."""

    def __init__(self, connection: RabbitConnection, names: Names, start: Start, publishing: Any) -> None:
        self.progress = Progress(connection, names, publishing)
        self.note: OffsetNote | None = None
        self.problem: str | None = None
        self._connection = connection
        self._names = names
        self._start = start

    async def lock(self) -> None:
        """Become the reader, and read the note of the last one. Raises `HeadraceError`."""
        await check_stream(self._connection, self._names.stream)
        await self.progress.lock()
        self.note = await self.progress.read()

    async def lane(self, mark: LogMark | None) -> Lane:
        """Return the lane, with the offset after which its reading begins. `mark` is that of the event log.

        Raises:
            UpstreamError: Messages may be lost: the note was deleted, or the server has lost the end of the stream.
            StreamError: The server does not answer.
        """
        stream, note = self._names.stream, self.note
        if note is None or note.birthmark is None:
            return await self._first_lane(mark)
        if not await self.progress.is_born(note.birthmark):
            log.error("stream of rabbitmq created again", stream=stream, offset=note.offset)
            self.problem = (
                f"Stream {stream} was deleted and created again. It is read from its first message on, as another lane. "
                "What the deleted one had after its committed offset is lost."
            )
            return await self._new_lane(NO_OFFSET, mark)
        if note.offset is not None and note.offset != NO_OFFSET:
            await self._check_end(note.birthmark, note.offset)
        return Lane(stream, note.birthmark, note.offset)

    async def _first_lane(self, mark: LogMark | None) -> Lane:
        if mark is not None and mark.receipts > 0:
            if self._start == "latest" or isinstance(self._start, int):
                raise UpstreamError(
                    f"Messages may be lost: the stored offset of stream {self._names.stream!r} is missing, and it was read before. "
                    f"Queue {self._names.notes!r} was deleted or purged.",
                    hint='Set start="earliest" or a time. The stream is then read again, as another lane.',
                )
            log.error("offset of a stream of rabbitmq missing", stream=self._names.stream, queue=self._names.notes)
            self.problem = (
                f"Queue {self._names.notes} was deleted or purged. "
                f"Stream {self._names.stream} is read again from its start, as another lane."
            )
        if self._start != "latest":
            return await self._new_lane(None, mark)
        last = await last_offset(self._connection, self._names.stream)
        return await self._new_lane(NO_OFFSET if last is None else last, mark)

    async def _new_lane(self, offset: int | None, mark: LogMark | None) -> Lane:
        """Give the stream a birthmark, then note it. If that is interrupted, the exchange stays until the stream is deleted, unused."""
        lane = Lane(self._names.stream, secrets.token_hex(BIRTHMARK_BYTES), offset)
        await self.progress.give_birthmark(lane.birthmark)
        await self.progress.store(lane.birthmark, offset, mark)
        return lane

    async def _check_end(self, birthmark: str, offset: int) -> None:
        """Check that the committed message or a later one is there. Otherwise a new message would get its offset, and be skipped."""
        last = await last_offset(self._connection, self._names.stream)
        if last is None or last < offset:
            raise UpstreamError(
                f"Messages may be lost: stream {self._names.stream!r} ends at offset {last}, and was read up to {offset}. "
                "The replica of this node lags, or the server has lost the end of the stream in a crash.",
                hint="If it has lost messages, delete the exchange "
                f"{self._names.birth(birthmark)!r}: the stream is then read again from its first message on, as another lane.",
            )
