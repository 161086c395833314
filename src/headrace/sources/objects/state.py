"""The finished objects, stored in the bucket, and the fence between two readers.

One object, the *head*, has the objects in progress, the digests that were finished last, and the names of *segments*: objects with the
digests of all finished objects before. Each commit replaces the head on the condition that it is still the one that this reader has
written. So a second reader that opens the same state fences the first: its next commit is refused, and nothing of it becomes durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final
from uuid import uuid4

import msgspec
import structlog

from headrace.errors import HeadraceError, StreamError, UpstreamError, UpstreamFenced
from headrace.sources.objects.bucket import Bucket, Conflict, Missing
from headrace.sources.objects.digests import DigestSet, split
from headrace.sources.objects.location import StoredObject
from headrace.triggers.stream_log import LogMark, StreamLog

FORMAT: Final = 1
MAX_RECENT_DIGESTS: Final = 2_048
"""Digests in the head. They make 44 KB of it."""
MAX_SEGMENTS: Final = 32
"""Segments before they are merged into one."""
MAX_ATTEMPTS: Final = 3
MIN_MISSING: Final = 1_000
"""Digests of deleted objects that are not worth a merge, and one in MISSING_SHARE of all."""
MISSING_SHARE: Final = 10
STEPS_PER_SLICE: Final = 512
HEAD_NAME: Final = "head.json"

log = structlog.get_logger(__name__)


class OpenEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object in progress: all before byte `at` is done. `last` is the start of the last line that is done."""

    key: str
    etag: str
    size: int
    modified_ms: int | None
    at: int
    last: int | None = None
    version: str | None = None

    @property
    def stored(self) -> StoredObject:
        """The object."""
        return StoredObject(self.key, self.etag, self.size, self.modified_ms, self.version)


class Mark(msgspec.Struct, frozen=True):
    """The event log for which the state was written; see `LogMark`."""

    log: str
    stream: str
    receipts: int


class Head(msgspec.Struct, frozen=True):
    """The content of the head."""

    format: int
    stream: str
    reader: str
    commit: int
    segments: list[str]
    recent: bytes
    open: list[OpenEntry]
    mark: Mark | None = None


class State:
    """The state of one upstream in the folder `folder`. After `open`, one commit at a time."""

    def __init__(self, bucket: Bucket, folder: str, stream: str) -> None:
        self.finished = DigestSet()
        self.opened: Mapping[bytes, OpenEntry] = {}
        self._bucket = bucket
        self._folder = folder
        self._path = folder + HEAD_NAME
        self._stream = stream
        self._reader = uuid4().hex[:16]
        self._commit = 0
        self._etag: str | None = None
        self._segments: list[str] = []
        self._recent: list[bytes] = []
        self._open: dict[bytes, OpenEntry] = {}
        self._must_merge = False

    async def open(self, stream_log: StreamLog | None) -> None:
        """Read the state, check its mark, and take it over from any other reader.

        Raises:
            UpstreamError: The state is of another upstream, version or event log, or a part of it is missing.
            UpstreamFenced: Another reader opens it at the same time.
        """
        try:
            content = await self._bucket.get(self._path)
        except Missing:
            if stream_log is not None and stream_log.mark.receipts:
                log.warning("state of an upstream missing, all objects read again", state=self._path)
        else:
            head = self._decoded(content.data)
            if head.stream != self._stream:
                raise UpstreamError(
                    f"{self._path} is the state of {head.stream!r}, not of {self._stream!r}.", hint="Give it another state=."
                )
            if stream_log is not None:
                await stream_log.check(None if head.mark is None else LogMark(head.mark.log, head.mark.stream, head.mark.receipts))
            self._etag, self._commit, self._segments = content.etag, head.commit, list(head.segments)
            await self._load(head)
            self._open = {entry.stored.digest: entry for entry in head.open}
        self.opened = dict(self._open)
        await self.commit(None if stream_log is None else stream_log.mark)
        await self._remove_orphans()

    async def check_access(self) -> None:
        """Check that the state can still be read. Raises `UpstreamError` if the service refuses the credentials, whatever they request."""
        with suppress(Missing, StreamError):
            await self._bucket.get(self._path)

    async def _load(self, head: Head) -> None:
        for name in self._segments:
            try:
                content = await self._bucket.get(self._folder + name)
            except Missing as error:
                raise UpstreamError(
                    f"A part of the state is missing: {self._folder}{name}.",
                    hint=f"Restore it. To read all objects again, delete {self._path}: no event is stored twice.",
                ) from error
            await asyncio.to_thread(self.finished.add_packed, content.data)
        self.finished.add_packed(head.recent)
        self._recent = list(split(head.recent))

    def finish(self, digest: bytes) -> None:
        """Record an object as finished, with the next commit."""
        self._open.pop(digest, None)
        if digest not in self.finished:
            self.finished.add(digest)
            self._recent.append(digest)

    def progress(self, digest: bytes, entry: OpenEntry) -> None:
        """Record how far an object is done, with the next commit."""
        if digest not in self.finished:
            self._open[digest] = entry

    def drop(self, digest: bytes) -> None:
        """Remove an object in progress, with the next commit: it no longer exists."""
        self._open.pop(digest, None)

    async def commit(self, mark: LogMark | None) -> None:
        """Make all that was recorded durable.

        Raises:
            UpstreamFenced: Another reader has taken over the state.
            StreamError: The service does not answer. The call may be repeated.
            UpstreamError: A permission is missing.
        """
        replaced = await self._flush() if len(self._recent) > MAX_RECENT_DIGESTS or self._must_merge else []
        for _ in range(MAX_ATTEMPTS):
            head = Head(
                FORMAT,
                self._stream,
                self._reader,
                self._commit + 1,
                self._segments,
                b"".join(self._recent),
                list(self._open.values()),
                None if mark is None else Mark(*mark),
            )
            data = msgspec.json.encode(head)
            try:
                self._etag = await self._bucket.put(self._path, data, replaces=self._etag)
            except (Conflict, Missing):
                if not await self._is_own(data):
                    continue
            self._commit += 1
            await self._delete(replaced)
            return
        raise StreamError(f"The state {self._path} cannot be written: it changes all the time.")

    async def _is_own(self, data: bytes) -> bool:
        """Return whether the head is what was sent: the answer of an earlier attempt was lost. Raises `UpstreamFenced`."""
        try:
            content = await self._bucket.get(self._path)
        except Missing as error:
            raise UpstreamError(
                f"The state {self._path} was deleted while it was used.", hint="When the upstream opens again, all objects are read again."
            ) from error
        head = self._decoded(content.data)
        if head.reader != self._reader:
            raise UpstreamFenced(f"Another reader has taken over the state {self._path}.")
        self._etag = content.etag
        if content.data == data:
            return True
        self._commit = head.commit
        return False

    def _decoded(self, data: bytes) -> Head:
        try:
            head = msgspec.json.decode(data, type=Head)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UpstreamError(
                f"{self._path} is not the state of an upstream: {error}.", hint="Give the upstream another state=."
            ) from error
        if head.format != FORMAT:
            raise UpstreamError(f"The state {self._path} has the format {head.format}, and this version knows {FORMAT}.")
        return head

    async def _flush(self) -> list[str]:
        """Move the last digests to a segment. Return the names of the segments that the next commit replaces."""
        name = f"{self._commit + 1:012}-{uuid4().hex[:16]}.digests"
        merges = self._must_merge or len(self._segments) >= MAX_SEGMENTS
        moved, self._recent, self._must_merge = self._recent, [], False
        data = self.finished.packed() if merges else b"".join(moved)
        try:
            await self._bucket.put(self._folder + name, data, replaces=None)
        except BaseException as error:
            self._recent, self._must_merge = moved + self._recent, self._must_merge or merges
            if isinstance(error, Conflict | Missing):
                raise StreamError(f"A part of the state cannot be written: {self._folder}{name} exists.") from error
            raise
        replaced = self._segments if merges else []
        self._segments = [name] if merges else [*self._segments, name]
        return replaced

    async def retain(self, seen: DigestSet) -> None:
        """Prune finished objects that a complete listing does not have, if they are many. `seen` also has what was finished meanwhile."""
        missing = 0
        for step, count in enumerate(self.finished.count_missing(seen)):
            missing += count
            if step % STEPS_PER_SLICE == 0:
                await asyncio.sleep(0)
        if missing < max(MIN_MISSING, len(self.finished) // MISSING_SHARE):
            return
        for step, _ in enumerate(self.finished.retain(seen)):
            if step % STEPS_PER_SLICE == 0:
                await asyncio.sleep(0)
        self._recent = [digest for digest in self._recent if digest in seen]
        self._must_merge = True
        log.info("finished objects that no longer exist removed from the state", state=self._path, objects=missing)

    async def _remove_orphans(self) -> None:
        """Delete segments that a killed reader has left. A segment of a later reader has a higher number of a commit, and stays."""
        continuation: str | None = None
        orphans: list[str] = []
        while True:
            page = await self._bucket.list(self._folder, continuation)
            names = [one.key.removeprefix(self._folder) for one in page.objects]
            orphans += [name for name in names if name.endswith(".digests") and name not in self._segments and _number(name) < self._commit]
            continuation = page.next
            if continuation is None:
                break
        await self._delete(orphans)

    async def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                await self._bucket.delete(self._folder + name)
            except HeadraceError as error:
                log.warning("old part of a state not deleted", state=self._folder + name, error=str(error))


def _number(name: str) -> int:
    """Return the number of the commit for which a segment was written, or that of the last possible one."""
    digits = name.partition("-")[0]
    return int(digits) if digits.isdecimal() else 10**12
