"""Read streams of Redis as a shared stream: a reader, the leases, and one commit for all lanes that wait."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping, Sequence
from contextlib import aclosing
from operator import length_hint
from typing import Final, NamedTuple

import structlog

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import HeadraceError, StreamError
from headrace.sources.group_commit import GroupCommit
from headrace.sources.progress_note import newest_marks
from headrace.sources.redis.client import RedisClient
from headrace.sources.redis.errors import ServerAway
from headrace.sources.redis.lane import Answers, Lane
from headrace.sources.redis.message import StreamEntry, decode_entry_again
from headrace.sources.redis.reader import Description, StreamReader
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection
from headrace.triggers.stream_log import LogMark
from headrace.triggers.upstream import SharedStreamProducer

RENEWALS_PER_LEASE: Final = 4
RELEASE_SECONDS: Final = 2.0
TOKEN_BYTES: Final = 16

log = structlog.get_logger(__name__)


class _Commit(NamedTuple):
    """The batch of a lane: the ids to acknowledge, and its answers."""

    lane: Lane
    ids: Sequence[bytes]
    answers: Answers


class RedisProducer(SharedStreamProducer):
    """The producer of a `RedisStreams` upstream. `advance` acknowledges entries, with one pipeline for all waiting lanes.

    A failed entry stays pending. It is read again when the upstream is opened next, before the later entries of its lane.
    """

    def __init__(self, description: Description) -> None:
        self._description = description
        self._client: RedisClient | None = None
        self._reader: StreamReader | None = None
        self._beat: asyncio.Task[None] | None = None
        self._batch: Iterator[tuple[Message, StreamEntry]] = iter(())
        self._advances: GroupCommit[Sequence[AdvanceItem], HeadraceError | None] = GroupCommit(self._commit)

    async def open_stream(self) -> AsyncIterator[tuple[Message, StreamEntry]]:
        """Take the leases and yield the entries of the streams without end.

        Raises:
            UpstreamError: The connection, a right or the client library is missing, or an entry cannot be read.
            UpstreamFenced: Another reader has taken over.
            StreamError: Another reader has a lease, the server does not answer, or entries are missing.
        """
        description = self._description
        connection = await aget_connection(description.connection)
        lease_ms = description.lease_seconds * 1_000
        client = self._client = await RedisClient.open(connection, secrets.token_hex(TOKEN_BYTES), lease_ms)
        was_read = self.log is not None and self.log.mark.receipts > 0
        reader = self._reader = StreamReader(description, client, was_read=was_read)
        await reader.open()
        await self._check_marks(reader.marks)
        self._beat = asyncio.create_task(self._renew(reader), name="headrace redis lease")
        if self.log is not None and self.log.seek is not None:
            await reader.move(self.log.seek)
        async with aclosing(reader.entries()) as batches:
            async for items in batches:
                self._batch = iter(items)
                for item in self._batch:
                    yield item
                    if self._beat.done():
                        self._beat.result()

    async def _check_marks(self, marks: Sequence[LogMark]) -> None:
        """Compare the newest mark of each event log with the event log."""
        if self.log is None:
            return
        for mark in newest_marks(marks):
            await self.log.check(mark)

    async def _renew(self, reader: StreamReader) -> None:
        """Prolong the leases, also while the stream takes no entries."""
        while True:
            await asyncio.sleep(self._description.lease_seconds / RENEWALS_PER_LEASE)
            try:
                await reader.renew()
            except ServerAway as error:
                log.debug("lease of Redis not renewed", error=str(error))

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Acknowledge the batch, in one pipeline with the batches of other lanes that wait.

        Raises:
            UpstreamFenced: Another reader has taken over.
            StreamError: The server does not answer.
        """
        error = await self._advances.submit(batch)
        if error is not None:
            raise error

    def get_advance_lane(self, broker_payload: StreamEntry) -> Hashable:
        """Return the stream key with its birthmark."""
        return broker_payload.lane.name

    def get_position(self, broker_payload: StreamEntry) -> int | None:
        """Return the position that the id of the entry makes."""
        return broker_payload.position

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the position of the last entry of the stream key, as of the last look."""
        state = None if self._reader is None else self._reader.lane(str(lane))
        return None if state is None else state.end

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the position up to which all entries are answered or missing, or None if it is unknown."""
        state = None if self._reader is None else self._reader.lane(str(lane))
        return None if state is None else state.committed

    def get_unread(self) -> int | None:
        """Return the number of entries that are not yielded, as of the last look, or None while pending entries are read again."""
        unread = None if self._reader is None else self._reader.unread
        return None if unread is None else unread + length_hint(self._batch)

    def get_errors(self) -> Mapping[str, str]:
        """Return the lanes with missing entries, the streams that were deleted, and whether the server is away."""
        return {} if self._reader is None else dict(self._reader.problems)

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed entry, decoded again."""
        return decode_entry_again(self._description.format, message)

    async def aclose(self) -> None:
        """Give the leases back and close the connections. The next reader can start at once."""
        try:
            if self._beat is not None:
                self._beat.cancel()
                await asyncio.gather(self._beat, return_exceptions=True)
            await self._advances.aclose()
            if self._reader is not None:
                await self._release(self._reader)
        finally:
            if self._client is not None:
                await self._client.close()

    async def _release(self, reader: StreamReader) -> None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                try:
                    await reader.release()
                except ServerAway:  # the connection ended while it was idle: the client notices with the first request
                    await reader.release()
        except (HeadraceError, TimeoutError) as error:
            log.info("lease of Redis left behind", seconds=self._description.lease_seconds, error=str(error))

    async def _commit(self, batches: list[Sequence[AdvanceItem]]) -> list[HeadraceError | None]:
        reader = self._reader
        if reader is None:
            raise StreamError("The reading of Redis has not begun.")
        commits = [_answers(batch) for batch in batches]
        targets = [one.lane.answer(one.answers) for one in commits]
        mark = None if self.log is None else self.log.mark
        calls = [reader.commit_call(one.lane, one.ids, target, mark) for one, target in zip(commits, targets, strict=True)]
        errors: list[HeadraceError | None] = []
        for one, target, outcome in zip(commits, targets, await reader.commit(calls), strict=True):
            # Entries of a stream that was deleted need no acknowledgement.
            error = outcome if isinstance(outcome, HeadraceError) else None
            if error is None:
                one.lane.commit(target, one.answers.last)
            errors.append(error)
        return errors


def _answers(batch: Sequence[AdvanceItem]) -> _Commit:
    entries: list[StreamEntry] = [item.broker_payload for item in batch]
    failed = [item.broker_payload.position for item in batch if item.outcome.failed]
    before = [entry.position for entry in entries if failed and entry.position < failed[0]]
    ids = [item.broker_payload.id for item in batch if not item.outcome.failed]
    return _Commit(entries[0].lane, ids, Answers(entries[-1].position, failed, before[-1] if before else None))
