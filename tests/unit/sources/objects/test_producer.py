"""Objects that are replaced while they wait, deletions of notifications that fail, and the end of a reading.

The buckets and queues are in memory, because their failures are what the tests are about.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from headrace.core.connection import Connection
from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import StreamError
from headrace.sources.leases.leases import Lease
from headrace.sources.leases.producer import LeaseProducer
from headrace.sources.leases.service import Answer, Failures, LeaseService, LeaseSettings, Received
from headrace.sources.objects import intake, producer
from headrace.sources.objects.bucket import Content, Missing, Page
from headrace.sources.objects.location import StoredObject
from headrace.sources.objects.producer import ObjectProducer
from headrace.sources.objects.reading import UNREADABLE
from headrace.sources.objects.upstream import ObjectStore
from headrace.sources.sqs.upstream import SQS
from headrace.testing.contract.reading import Reading, reading
from headrace.triggers.raw_event import Message

PAGE_OBJECTS: Final = 100
EXTENSIONS: Final = "headrace lease extensions"


class MemoryBucket:
    """A bucket with `listed` objects; see `Bucket`. Tests override `get_range`."""

    def __init__(self, *listed: StoredObject) -> None:
        self.listed = list(listed)
        self.pages = 0
        self.writes_hang = False
        self._state: dict[str, Content] = {}
        self._writes = 0

    async def list(self, prefix: str, continuation: str | None) -> Page:
        if ".headrace/" in prefix:
            return Page([], None)
        self.pages += 1
        end = int(continuation or 0) + PAGE_OBJECTS
        return Page(self.listed[end - PAGE_OBJECTS : end], str(end) if end < len(self.listed) else None)

    async def head(self, key: str, version: str | None = None) -> StoredObject:
        raise Missing(key)

    async def get(self, key: str) -> Content:
        if key not in self._state:
            raise Missing(key)
        return self._state[key]

    async def get_range(self, stored: StoredObject, start: int, end: int) -> bytes:
        return (b'{"a":1}\n' * stored.size)[start:end]

    async def put(self, key: str, data: bytes, *, replaces: str | None) -> str:
        if self.writes_hang:
            await asyncio.Event().wait()
        self._writes += 1
        self._state[key] = Content(data, f"state-{self._writes}")
        return f"state-{self._writes}"

    async def delete(self, key: str) -> None:
        self._state.pop(key, None)

    async def aclose(self) -> None:
        pass


class MemoryQueue:
    """A queue that leases its messages; see `LeaseService`. The next `failing` acknowledgements fail."""

    max_messages: Final = 10

    def __init__(self, *, failing: int = 0) -> None:
        self.failing = failing
        self.acknowledgements_hang = False
        self.polls_hang = False
        self.acknowledged: list[str] = []
        self.is_closed = False
        self._sent: list[Received] = []

    def send(self, id: str, value: bytes) -> None:
        self._sent.append(Received(id, f"receipt of {id}", None, "queue", [Message(value, "queue", None, id=id)]))

    def poll(self) -> Callable[[], Awaitable[Answer]]:
        return self._poll

    async def acknowledge(self, leases: Sequence[Lease]) -> Failures:
        if self.acknowledgements_hang:
            await asyncio.Event().wait()
        if self.failing:
            self.failing -= 1
            raise StreamError("Throttled.")
        self.acknowledged += [lease.id for lease in leases]
        return {}

    async def set_lease(self, leases: Sequence[Lease], seconds: int) -> Failures:
        return {}

    async def aclose(self) -> None:
        self.is_closed = True

    async def _poll(self) -> Answer:
        if self.polls_hang:
            await asyncio.Event().wait()
        await asyncio.sleep(0.01)
        received, self._sent = self._sent, []
        return Answer(received, is_full=False)


class MemoryQueueProducer(LeaseProducer):
    """The reader of a `MemoryQueue`. A poll may take a minute."""

    def __init__(self, queue: MemoryQueue) -> None:
        super().__init__()
        self.queue = queue

    async def connect(self) -> tuple[LeaseService, LeaseSettings]:
        return self.queue, LeaseSettings("queue", 30.0, 30, 60.0, is_ordered=False)


def notification(key: str, size: int, etag: str, **fields: Any) -> bytes:
    described = {"bucket": {"name": "b"}, "object": {"key": key, "size": size, "eTag": etag} | fields}
    return json.dumps({"eventName": "ObjectCreated:Put", "s3": described}).encode()


MakeProducer = Callable[..., ObjectProducer]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> MakeProducer:
    """Return a function that makes a producer for a bucket and a queue in memory."""

    def make(bucket: MemoryBucket, queue: MemoryQueue | None = None, **arguments: Any) -> ObjectProducer:
        async def open_bucket(connection: Connection, name: str) -> MemoryBucket:
            return bucket

        async def connect(name: str) -> None:
            pass

        monkeypatch.setattr(producer, "BUCKETS", {"s3": open_bucket})
        monkeypatch.setattr(producer, "aget_connection", connect)
        if queue is not None:
            monkeypatch.setattr(SQS, "producer", lambda upstream: MemoryQueueProducer(queue))
            arguments["notifications"] = SQS("queue", decode="s3")
        return ObjectStore("s3://b/in", **({"interval": 3600.0} | arguments)).producer()

    return make


async def until(condition: Callable[[], object]) -> None:
    """Wait up to 20 s for a condition."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def running(name: str) -> bool:
    return any(task.get_name() == name for task in asyncio.all_tasks())


class ReplacedBucket(MemoryBucket):
    """Its object was replaced: the first state is there as version `v1` only. Requests wait until `answer` is set."""

    def __init__(self) -> None:
        super().__init__(StoredObject("in/a", "e1", 8, 0))
        self.answer = asyncio.Event()
        self.requests: list[str | None] = []
        self.answered = 0

    async def get_range(self, stored: StoredObject, start: int, end: int) -> bytes:
        self.requests.append(stored.version)
        await self.answer.wait()
        self.answered += 1
        if stored.version != "v1":
            raise Missing(stored.key)
        return b'{"a":1}\n'[start:end]


async def test_a_replaced_object_is_read_as_the_version_that_its_notification_names_during_the_request(make: MakeProducer) -> None:
    bucket, queue = ReplacedBucket(), MemoryQueue()
    reader = make(bucket, queue, read="lines")
    async with reading(reader) as stream:
        await until(lambda: bucket.requests == [None])
        queue.send("m1", notification("in/a", 8, "e1", versionId="v1"))
        await until(lambda: _waits_for_its_end(reader))
        bucket.answer.set()
        items = await stream.take(1)
        assert [raw.data for raw, _ in items] == [b'{"a":1}']
        assert (bucket.requests, queue.acknowledged) == ([None, "v1"], [])
        await stream.advance(items)
        assert queue.acknowledged == ["m1"]
        assert reader.get_errors() == {}


async def test_bytes_that_were_fetched_ahead_are_fetched_again_with_the_version(make: MakeProducer) -> None:
    bucket, queue = ReplacedBucket(), MemoryQueue()
    bucket.answer.set()
    bucket.listed.insert(0, StoredObject("in/0", "e0", 8, 0, "v1"))
    reader = make(bucket, queue, read="lines")
    stream = reader.open_stream()
    try:
        # The stream is not read on, so the failed bytes of the second object wait.
        assert (await anext(stream))[0].key == "in/0"
        await until(lambda: bucket.answered == 2)
        queue.send("m1", notification("in/a", 8, "e1", versionId="v1"))
        await until(lambda: _waits_for_its_end(reader))
        raw, _ = await anext(stream)
        assert (raw.key, bucket.requests) == ("in/a", ["v1", None, "v1"])
        assert reader.get_errors() == {}
    finally:
        await reader.aclose()


async def test_an_object_whose_version_is_missing_too_is_lost(make: MakeProducer) -> None:
    class Emptied(ReplacedBucket):
        async def get_range(self, stored: StoredObject, start: int, end: int) -> bytes:
            self.requests.append(stored.version)
            raise Missing(stored.key)

    bucket, queue = Emptied(), MemoryQueue()
    queue.send("m1", notification("in/a", 8, "e1", versionId="v1"))
    reader = make(bucket, queue, read="lines", interval=None)
    async with reading(reader):
        await until(lambda: queue.acknowledged == ["m1"])
        assert ["Deleted or replaced" in text for text in reader.get_errors().values()] == [True]
        assert set(bucket.requests) == {"v1"}


def _waits_for_its_end(reader: ObjectProducer) -> bool:
    opened = reader._opened
    return opened is not None and any(tracked.parts for tracked in opened.tracker._open.values())


async def test_a_notification_of_an_empty_object_is_deleted_when_the_first_deletion_fails(
    make: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Empty(MemoryBucket):
        async def head(self, key: str, version: str | None = None) -> StoredObject:
            return StoredObject(key, "e1", 0, 0)

    monkeypatch.setattr(intake, "RETRY_SECONDS", 0.01)
    queue = MemoryQueue(failing=1)
    queue.send("m1", notification("in/empty", 0, "e1"))
    reader = make(Empty(), queue, read="lines", interval=None)
    async with reading(reader):
        await until(lambda: queue.acknowledged == ["m1"])
        await until(lambda: reader.get_errors() == {})


@asynccontextmanager
async def notified(reader: ObjectProducer, queue: MemoryQueue) -> AsyncIterator[tuple[Reading, Any]]:
    """Read one notified object. At the end, nothing is closed."""
    queue.send("m1", notification("in/a", 8, "e1"))
    stream = Reading(reader)
    task = asyncio.create_task(stream.run())
    items = await stream.take(1)
    yield stream, items[0][1]
    task.cancel()
    await asyncio.wait([task])


async def test_a_close_that_is_cancelled_during_a_write_extends_no_more_leases(make: MakeProducer) -> None:
    bucket, queue = MemoryBucket(), MemoryQueue()
    reader = make(bucket, queue, interval=None)
    async with notified(reader, queue) as (_, position):
        bucket.writes_hang = queue.polls_hang = True
        advancing = asyncio.create_task(reader.advance([AdvanceItem(position, AdvanceOutcome(1, 0))]))
        await until(lambda: running("headrace group commit"))
    closing = asyncio.create_task(reader.aclose())
    await until(lambda: not running("headrace notifications of a bucket"))
    closing.cancel()
    advancing.cancel()
    await until(closing.done)
    assert closing.cancelled()
    await until(lambda: not running(EXTENSIONS))
    assert queue.is_closed
    _end("headrace group commit")


async def test_a_close_that_is_cancelled_during_a_deletion_extends_no_more_leases(make: MakeProducer) -> None:
    queue = MemoryQueue()
    reader = make(MemoryBucket(), queue, interval=None)
    async with notified(reader, queue):
        queue.acknowledgements_hang = queue.polls_hang = True
        queue.send("m2", notification("out/b", 8, "e2"))
        queue.polls_hang = False
        await until(lambda: running("headrace notifications"))
        queue.polls_hang = True
    closing = asyncio.create_task(reader.aclose())
    await until(lambda: not running("headrace notifications of a bucket"))
    closing.cancel()
    await until(closing.done)
    assert closing.cancelled()
    await until(lambda: not running(EXTENSIONS) and not running("headrace notifications"))
    assert queue.is_closed
    _end("headrace group commit")


def _end(name: str) -> None:
    """Cancel the tasks of a bucket or queue in memory that does not answer."""
    for task in asyncio.all_tasks():
        if task.get_name() in (name, "headrace poll of a queue"):
            task.cancel()


class ArchivedBucket(MemoryBucket):
    """The bytes of its objects below `in/archived` cannot be read while `is_archived`."""

    is_archived = True

    async def get_range(self, stored: StoredObject, start: int, end: int) -> bytes:
        if self.is_archived and "archived" in stored.key:
            raise StreamError(f"Object {stored.key!r} cannot be read: it is archived.")
        return await super().get_range(stored, start, end)


def archived(count: int) -> list[StoredObject]:
    return [StoredObject(f"in/archived-{number:05}", f"e{number}", 8, 0) for number in range(count)]


async def test_unreadable_objects_need_no_tasks_and_the_report_names_a_hundred_of_them(make: MakeProducer) -> None:
    bucket = ArchivedBucket(*archived(300), StoredObject("in/z", "z", 8, 0))
    reader = make(bucket, read="lines")
    async with reading(reader) as stream:
        assert [raw.key for raw, _ in await stream.take(1)] == ["in/z"]
        assert len(asyncio.all_tasks()) < 50
        errors = reader.get_errors()
        assert len(errors) == 101
        assert errors[UNREADABLE].startswith("200 more objects cannot be read.")


async def test_listings_pause_while_too_many_objects_cannot_be_read(make: MakeProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_RETRIED", 150)
    monkeypatch.setattr(intake, "MAX_WAITING", 100)
    monkeypatch.setattr(intake, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(intake, "MAX_RETRY_SECONDS", 0.05)
    bucket = ArchivedBucket(*archived(500), StoredObject("in/z", "z", 8, 0))
    reader = make(bucket, read="lines")
    async with reading(reader) as stream:
        await until(lambda: UNREADABLE in reader.get_errors() and bucket.pages == 2)
        opened = reader._opened
        assert opened is not None
        await until(lambda: all(tracked.failures > 3 for tracked in opened.tracker._open.values()))
        assert (bucket.pages, len(opened.tracker)) == (2, 200)
        bucket.is_archived = False
        items = await stream.take(501)
        keys = {raw.key for raw, _ in items}
        assert len(keys) == 501, "retries have no order"
        assert "in/z" in keys
        await until(lambda: reader.get_errors() == {})


async def test_an_object_that_is_missing_at_last_is_no_longer_named_as_unreadable(
    make: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deleted(ArchivedBucket):
        async def get_range(self, stored: StoredObject, start: int, end: int) -> bytes:
            if not self.is_archived:
                raise Missing(stored.key)
            return await super().get_range(stored, start, end)

    monkeypatch.setattr(intake, "RETRY_SECONDS", 0.01)
    bucket = Deleted(*archived(1))
    reader = make(bucket, read="lines")
    async with reading(reader):
        await until(lambda: "in/archived-00000" in reader.get_errors())
        bucket.is_archived = False
        await until(lambda: any("Deleted or replaced" in text for text in reader.get_errors().values()))
        assert "in/archived-00000" not in reader.get_errors()
