"""Read objects: their metadata as one raw event each, or their lines, with the first bytes of the next objects fetched ahead."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from headrace.errors import HeadraceError, StreamError
from headrace.sources.decoding import Decoder, decoded_message
from headrace.sources.line_splitter import LONG_LINE, Line, LineSplitter
from headrace.sources.objects.bucket import Bucket
from headrace.sources.objects.intake import Intake
from headrace.sources.objects.tracker import ObjectPosition, TrackedObject
from headrace.triggers.raw_event import Message

FIRST_BYTES: Final = 256 * 1024
CHUNK_BYTES: Final = 1024 * 1024
MAX_AHEAD: Final = 16
"""Objects whose first bytes are fetched ahead: up to 4 MiB."""

log = structlog.get_logger(__name__)

_encode: Final = msgspec.json.Encoder().encode


def metadata_message(bucket: str, tracked: TrackedObject) -> Message:
    """Return the raw event of an object."""
    key, etag, size, modified_ms, version = tracked.stored
    modified = None if modified_ms is None else datetime.fromtimestamp(modified_ms / 1_000, UTC)
    text = _encode({"bucket": bucket, "key": key, "size": size, "etag": etag, "last_modified": modified, "version": version})
    return Message(text, bucket, None, key=key, timestamp_ms=modified_ms, id=tracked.digest.hex())


class LineReading:
    """Reads the lines of objects. `problems` names objects that cannot be read now."""

    def __init__(self, bucket: Bucket, intake: Intake, decode: Decoder, problems: dict[str, str]) -> None:
        self._bucket = bucket
        self._intake = intake
        self._decode = decode
        self._problems = problems
        self._failures: dict[str, int] = {}
        self._ahead: deque[tuple[TrackedObject, asyncio.Task[bytes]]] = deque()

    async def next(self) -> tuple[TrackedObject, asyncio.Task[bytes]]:
        """Return the next object, and the task that fetches its first bytes."""
        if not self._ahead:
            self._fetch(await self._intake.next())
        while len(self._ahead) < MAX_AHEAD and (tracked := self._intake.next_now()) is not None:
            self._fetch(tracked)
        return self._ahead.popleft()

    async def lines(self, tracked: TrackedObject, first: asyncio.Task[bytes]) -> AsyncGenerator[tuple[Message, ObjectPosition], None]:
        """Yield the lines that were not yielded yet. Raises `Missing`."""
        stored, start = tracked.stored, tracked.owed
        splitter = LineSplitter(start)
        data = await first
        while True:
            start += len(data)
            lines = splitter.feed(data)
            if start >= stored.size:
                lines += splitter.end()
                # From here on, the answer to the last line finishes the object.
                tracked.has_ended = True
                if lines:
                    tracked.owed, tracked.last = lines[-1].end, lines[-1].start
            elif not data:
                raise StreamError(f"Object {stored.key!r} cannot be read: it ends at byte {start} of {stored.size}.")
            for line in lines:
                if not tracked.has_ended:
                    tracked.owed, tracked.last = line.end, line.start
                yield self._message(tracked, line), ObjectPosition(tracked, line.start, line.end)
            if tracked.has_ended:
                self._succeed(stored.key)
                return
            data = await self._bucket.get_range(stored, start, min(start + CHUNK_BYTES, stored.size))

    def fail(self, tracked: TrackedObject, error: HeadraceError) -> None:
        """Read an object again later, from what was yielded of it."""
        key = tracked.stored.key
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if failures == 1:
            log.warning("object not readable", key=key, error=str(error))
        self._problems[key] = str(error)
        self._intake.retry(tracked, failures)

    async def aclose(self) -> None:
        """End the requests."""
        tasks = [task for _, task in self._ahead]
        self._ahead.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fetch(self, tracked: TrackedObject) -> None:
        task = asyncio.create_task(self._first(tracked), name="headrace first bytes of an object")
        self._ahead.append((tracked, task))

    async def _first(self, tracked: TrackedObject) -> bytes:
        stored, start = tracked.stored, tracked.owed
        return await self._bucket.get_range(stored, start, min(start + FIRST_BYTES, stored.size)) if start < stored.size else b""

    def _succeed(self, key: str) -> None:
        if self._failures.pop(key, None) is not None:
            self._problems.pop(key, None)

    def _message(self, tracked: TrackedObject, line: Line) -> Message:
        key, modified = tracked.stored.key, tracked.stored.modified_ms
        if line.too_long:
            return Message(line.data, tracked.lane, line.start, key=key, timestamp_ms=modified, malformed=LONG_LINE)
        return decoded_message(self._decode, line.data, tracked.lane, line.start, key=key, timestamp_ms=modified)
