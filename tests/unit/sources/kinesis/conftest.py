"""A stream and a table of the progress in memory, which fail as a test says."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.sources.decoding import DECODERS
from headrace.sources.kinesis import reader as reader_module
from headrace.sources.kinesis.client import Record, Records, Shard, StreamInfo
from headrace.sources.kinesis.lanes import Checkpoint
from headrace.sources.kinesis.producer import KinesisArguments, KinesisProducer
from headrace.sources.kinesis.reader import Reading, StreamReader
from headrace.sources.kinesis.table import Reader
from support.sources.kit import PATIENCE

HOUR_MS = 3_600_000
RETENTION_MS = 24 * HOUR_MS
MAX_HASH = 2**128 - 1


class MemoryStream:
    """A stream. `now_ms` is the time of the service and of the reader."""

    def __init__(self) -> None:
        self.late_ms = 0
        self.listed: dict[str, Shard] = {}
        self.closed: set[str] = set()
        self.is_closed = False
        self._records: dict[str, list[Record]] = {}

    @property
    def now_ms(self) -> int:
        return int(time.time() * 1_000) + self.late_ms

    def add_shard(self, id: str, *parents: str, first_hash: int = 0, last_hash: int = MAX_HASH) -> None:
        """Add a shard, and close its parents."""
        self.listed[id] = Shard(id, parents, first_hash, last_hash)
        self.closed.update(parents)

    def send(self, shard: str, *sequences: int, data: bytes = b"1") -> None:
        """Add records that arrive now."""
        self._records.setdefault(shard, []).extend(Record(str(sequence), "k", data, self.now_ms) for sequence in sequences)

    async def describe(self) -> StreamInfo:
        return StreamInfo("1", RETENTION_MS, self.now_ms)

    async def shards(self) -> list[Shard]:
        return list(self.listed.values())

    async def iterator_at(self, shard: str, sequence: str) -> str:
        return f"{shard}|{sequence}"

    async def iterator_from(self, shard: str, time_ms: int | None) -> str:
        return f"{shard}|0"

    async def records(self, iterator: str, limit: int) -> Records:
        await asyncio.sleep(0)
        shard, _, first = iterator.partition("|")
        later = [
            one for one in self._records.get(shard, ()) if int(one.sequence) >= int(first) and one.arrived_ms > self.now_ms - RETENTION_MS
        ]
        next = int(later[:limit][-1].sequence) + 1 if later else int(first)
        is_last = shard in self.closed and len(later) <= limit
        return Records(later[:limit], None if is_last else f"{shard}|{next}", int(len(later) > limit))

    async def aclose(self) -> None:
        self.is_closed = True


class MemoryTable:
    """A table. Its requests wait for `writable`. A commit raises the next of `failures` if it is an error."""

    def __init__(self) -> None:
        self.items: dict[str, Checkpoint] = {}
        self.writable = asyncio.Event()
        self.writable.set()
        self.failures: deque[HeadraceError | None] = deque()
        self.is_closed = False
        self.close_error: Exception | None = None

    async def take_over(self, lane: str, now_ms: int) -> Checkpoint:
        await self.writable.wait()
        return self.items.setdefault(lane, Checkpoint(known_ms=now_ms))

    async def commit(self, lane: str, checkpoint: Checkpoint, mark: object) -> None:
        await self.writable.wait()
        if self.failures and (error := self.failures.popleft()) is not None:
            raise error
        self.items[lane] = checkpoint

    async def check(self) -> None:
        return

    async def delete(self, lane: str) -> None:
        self.items.pop(lane, None)

    async def aclose(self) -> None:
        self.is_closed = True
        if self.close_error is not None:
            raise self.close_error


class Opening:
    """One opening of the stream: its producer and its reader."""

    def __init__(self, stream: Any, table: Any) -> None:
        self.stream: MemoryStream = stream
        self.table: MemoryTable = table
        owner = Reader(1, "id", "1", None)
        info = StreamInfo("1", RETENTION_MS, stream.now_ms)
        self.reader = StreamReader(Reading(stream, table, owner, DECODERS["json"], 0.01, lambda: None), info)
        self.producer = KinesisProducer(KinesisArguments("s", "g", "c", "t", "c", "earliest", "json", 0.01))
        self.producer._reader, self.producer._client, self.producer._table = self.reader, stream, table

    async def start(self) -> None:
        """Begin to read, as `open_stream` does."""
        await self.reader.start({name.rpartition("@")[0]: stored for name, stored in self.table.items.items()})

    async def take(self, count: int) -> list[Any]:
        """Return the next pairs of message and payload."""
        async with asyncio.timeout(PATIENCE):
            return [await self.reader.next() for _ in range(count)]


MakeOpening = Callable[[], Opening]


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MIN_INTERVAL_SECONDS", "FIRST_BACKOFF_SECONDS", "MAX_BACKOFF_SECONDS"):
        monkeypatch.setattr(reader_module, name, 0.01)
    monkeypatch.setattr(reader_module, "WATCH_SECONDS", 0.05)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch, short_pauses: None) -> MemoryStream:
    stream = MemoryStream()
    monkeypatch.setattr(reader_module, "_now_ms", lambda: stream.now_ms)
    return stream


@pytest.fixture
async def make_opening(stream: MemoryStream) -> AsyncIterator[MakeOpening]:
    """Return the function that opens the stream with the progress of the last opening."""
    openings: list[Opening] = []
    table = MemoryTable()

    def make() -> Opening:
        openings.append(Opening(stream, table))
        return openings[-1]

    yield make
    table.writable.set()
    table.close_error = None
    for opening in openings:
        await opening.producer.aclose()
