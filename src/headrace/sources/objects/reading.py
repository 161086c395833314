"""Read objects: their metadata as one raw event each, or their lines, with the first bytes of the next objects fetched ahead."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from headrace.errors import HeadraceError, StreamError
from headrace.sources.decoding import Decoder, decoded_message
from headrace.sources.files.line_splitter import LONG_LINE, Line, LineSplitter
from headrace.sources.objects.bucket import Bucket, Missing
from headrace.sources.objects.intake import MAX_RETRIED, Intake
from headrace.sources.objects.tracker import ObjectPosition, TrackedObject
from headrace.triggers.raw_event import Message

FIRST_BYTES: Final = 256 * 1024
CHUNK_BYTES: Final = 1024 * 1024
MAX_AHEAD: Final = 16
"""Objects whose first bytes are fetched ahead: up to 4 MiB."""
MAX_NAMED: Final = 100
"""Objects that cannot be read now, in the report of the stream."""
UNREADABLE: Final = "unreadable objects"

log = structlog.get_logger(__name__)

_encode: Final = msgspec.json.Encoder().encode


def metadata_message(bucket: str, tracked: TrackedObject) -> Message:
    """Return the raw event of an object."""
    key, etag, size, modified_ms, version = tracked.stored
    modified = None if modified_ms is None else datetime.fromtimestamp(modified_ms / 1_000, UTC)
    text = _encode({"bucket": bucket, "key": key, "size": size, "etag": etag, "last_modified": modified, "version": version})
    return Message(text, bucket, None, key=key, timestamp_ms=modified_ms, id=tracked.digest.hex())


class LineReading:
    """Reads the lines of objects."""

    def __init__(self, bucket: Bucket, intake: Intake, decode: Decoder) -> None:
        self._bucket = bucket
        self._intake = intake
        self._decode = decode
        self._unreadable = 0
        self._named: dict[str, str] = {}
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
        try:
            data = await first
        except Missing:
            # Its notification may have named the version after the request, which had none.
            if tracked.stored.version is None:
                raise
            data = await self._first(tracked)
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
                return
            data = await self._range(tracked, start, CHUNK_BYTES)

    def fail(self, tracked: TrackedObject, error: HeadraceError) -> None:
        """Read an object again later, from what was yielded of it."""
        key = tracked.stored.key
        tracked.failures += 1
        if tracked.failures == 1:
            self._unreadable += 1
            log.warning("object not readable", key=key, error=str(error))
        if key in self._named or len(self._named) < MAX_NAMED:
            self._named[key] = str(error)
        self._intake.retry(tracked)

    def end(self, tracked: TrackedObject) -> None:
        """Record that an object was read to its end, or is missing: its failures are over."""
        if tracked.failures:
            tracked.failures = 0
            self._unreadable -= 1
            self._named.pop(tracked.stored.key, None)

    def errors(self) -> Mapping[str, str]:
        """Return why objects cannot be read now, for up to MAX_NAMED of them, and how many others there are."""
        others = self._unreadable - len(self._named)
        if others <= 0:
            return self._named
        return self._named | {UNREADABLE: f"{others:,} more objects cannot be read. No others are looked for while {MAX_RETRIED:,} wait."}

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
        return await self._range(tracked, tracked.owed, FIRST_BYTES) if tracked.owed < tracked.stored.size else b""

    async def _range(self, tracked: TrackedObject, start: int, size: int) -> bytes:
        """Return up to `size` bytes of an object. Raises `Missing`."""
        while True:
            stored = tracked.stored
            try:
                return await self._bucket.get_range(stored, start, min(start + size, stored.size))
            except Missing:
                # A notification may have named the version during the request, which had none.
                if tracked.stored.version == stored.version:
                    raise

    def _message(self, tracked: TrackedObject, line: Line) -> Message:
        key, modified = tracked.stored.key, tracked.stored.modified_ms
        if line.too_long:
            return Message(line.data, tracked.lane, line.start, key=key, timestamp_ms=modified, malformed=LONG_LINE)
        return decoded_message(self._decode, line.data, tracked.lane, line.start, key=key, timestamp_ms=modified)
