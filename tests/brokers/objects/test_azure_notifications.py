"""Events of Event Grid about blobs in a queue of Azure, with listings and without them. The test sends what Event Grid would send."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.objects.azure.queue import StorageQueue
from headrace.testing.contract.reading import reading
from support.processes.azurite import Azurite
from support.sources.objects import TestBucket

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.xdist_group("objects"),
    pytest.mark.timeout(120),
    pytest.mark.parametrize("bucket", ["az"], indirect=True),
]

VISIBILITY_SECONDS = 3


class EventQueue:
    """A queue of the server of a bucket."""

    def __init__(self, bucket: TestBucket) -> None:
        assert isinstance(bucket.server, Azurite)
        self._bucket = bucket
        self.server = bucket.server
        self.name = self.server.create_queue()

    def send(
        self, key: str, etag: str = "x", size: int = 1, *, container: str | None = None, kind: str = "BlobCreated", **data: Any
    ) -> None:
        """Send an event as Event Grid does by default: in its own schema, and in Base64."""
        event = {
            "topic": "/subscriptions/1/resourceGroups/shop/providers/Microsoft.Storage/storageAccounts/shop",
            "subject": f"/blobServices/default/containers/{container or self._bucket.name}/blobs/{key}",
            "eventType": f"Microsoft.Storage.{kind}",
            "id": "831e1650-001e-001b-66ab-eeb76e069631",
            "eventTime": "2026-11-23T12:00:00.1234567Z",
            "data": {"api": "PutBlob", "eTag": etag, "contentLength": size, "blobType": "BlockBlob"} | data,
            "dataVersion": "",
            "metadataVersion": "1",
        }
        self.put(base64.b64encode(json.dumps(event).encode()).decode())

    def put(self, text: str) -> None:
        """Send a message."""
        self.server.put_message(self.name, text)

    def notify(self, name: str, content: bytes, **data: Any) -> None:
        """Write an object of the folder, and send its event."""
        self.send(f"in/{name}", self._bucket.put(name, content), len(content), **data)

    def count(self) -> int:
        """Return the number of messages, with those that readers hold."""
        return self.server.count_messages(self.name)

    def arguments(self, **more: Any) -> dict[str, Any]:
        """Return the arguments of an upstream that reads the queue, without listings by default."""
        queue = StorageQueue(self.name, connection=self._bucket.connection, visibility=VISIBILITY_SECONDS, wait=0.1)
        return {"notifications": queue, "interval": None} | more


@pytest.fixture
def queue(bucket: TestBucket) -> Iterator[EventQueue]:
    queue = EventQueue(bucket)
    yield queue
    queue.server.send("DELETE", f"/{queue.name}", to_queues=True)


async def until_count(queue: EventQueue, count: int) -> None:
    async with asyncio.timeout(30):
        while await asyncio.to_thread(queue.count) != count:
            await asyncio.sleep(0.05)


async def test_notified_objects_are_read_and_their_messages_deleted_when_they_are_done(bucket: TestBucket, queue: EventQueue) -> None:
    queue.notify("a b+é%41", b"1")
    queue.notify("b", b"2")
    async with reading(bucket.producer(**queue.arguments())) as stream:
        items = await stream.take(2)
        assert sorted(raw.key for raw, _ in items) == ["in/a b+é%41", "in/b"]
        await stream.advance(items[:1])
        await until_count(queue, 1)
    async with reading(bucket.producer(**queue.arguments())) as stream:
        assert [raw.key for raw, _ in await stream.take(1)] == [items[1][0].key]
    assert queue.count() == 1


async def test_cloud_events_lists_and_plain_text_are_read(bucket: TestBucket, queue: EventQueue) -> None:
    described = [
        {
            "specversion": "1.0",
            "type": "Microsoft.Storage.BlobCreated",
            "source": "/subscriptions/1",
            "id": "1",
            "time": "2026-11-23T12:00:00Z",
            "subject": f"/blobServices/default/containers/{bucket.name}/blobs/in/{name}",
            "data": {"api": "PutBlockList", "eTag": bucket.put(name, b"x"), "contentLength": 1},
        }
        for name in "abc"
    ]
    queue.put(json.dumps(described[0]))
    queue.put(json.dumps(described[1:]))
    async with reading(bucket.producer(**queue.arguments())) as stream:
        items = await stream.take(3)
        assert sorted(raw.key for raw, _ in items) == ["in/a", "in/b", "in/c"]
        await stream.advance([item for item in items if item[0].key != "in/c"])
        await until_count(queue, 1)
        await stream.advance([item for item in items if item[0].key == "in/c"])
        await until_count(queue, 0)


async def test_a_message_is_held_longer_than_its_timeout(bucket: TestBucket, queue: EventQueue) -> None:
    """Another reader sees no message while the first one holds it for several timeouts."""
    queue.notify("a", b"1")
    async with reading(bucket.producer(**queue.arguments())) as stream:
        items = await stream.take(1)
        async with asyncio.timeout(60):
            for _ in range(10 * VISIBILITY_SECONDS):
                peeked = await asyncio.to_thread(
                    queue.server.send, "GET", f"/{queue.name}/messages", {"peekonly": "true"}, None, b"", to_queues=True
                )
                assert b"<MessageId>" not in peeked.content
                # The reader itself receives a message whose timeout has ended: a peek may not see it.
                assert not stream.producer.get_errors()
                await asyncio.sleep(0.25)
        await stream.advance(items)
        await until_count(queue, 0)


async def test_a_reader_that_closes_releases_its_messages(bucket: TestBucket, queue: EventQueue) -> None:
    service = StorageQueue(queue.name, connection=bucket.connection, visibility=600, wait=0.1)
    queue.notify("a", b"1")
    for _ in range(2):
        async with reading(bucket.producer(**queue.arguments(notifications=service))) as stream:
            await stream.take(1)


async def test_a_listing_finds_what_was_not_notified_and_nothing_is_read_twice(bucket: TestBucket, queue: EventQueue) -> None:
    bucket.put("silent", b"0")
    for number in range(40):
        queue.notify(f"{number:02}", b"%d" % number)
    async with reading(bucket.producer(**queue.arguments(interval=0.5))) as stream:
        items = await stream.take(41)
        await stream.advance(items)
        await until_count(queue, 0)
        queue.notify("end", b"end")
        last = await stream.take(1)
    assert sorted(raw.key for raw, _ in items) == sorted(["in/silent", *(f"in/{number:02}" for number in range(40))])
    assert last[0][0].key == "in/end"


async def test_other_events_are_deleted_and_foreign_messages_stay(bucket: TestBucket, queue: EventQueue) -> None:
    queue.send("in/a", kind="BlobDeleted")
    queue.send("out/a")
    queue.send("in/begun", api="CreateFile", size=0)
    queue.send("in/a", container="another")
    queue.put("no event")
    queue.put(json.dumps({"subject": "/x", "data": {}}))
    bucket.put("z", b"z")
    queue.send("in/z", etag="", size=1)
    producer = bucket.producer(**queue.arguments())
    async with reading(producer) as stream:
        items = await stream.take(1)
        assert [(raw.key, raw.value["size"]) for raw, _ in items] == [("in/z", 1)]
        await stream.advance(items)
        await until_count(queue, 3)
        async with asyncio.timeout(20):
            while not producer.get_errors():
                await asyncio.sleep(0.05)
        assert list(producer.get_errors()) == ["notifications"]


async def test_lines_of_a_notified_object_and_one_that_is_gone(bucket: TestBucket, queue: EventQueue) -> None:
    queue.send("in/gone.jsonl", "0x8D0", 10)
    queue.notify("here.jsonl", b"1\n2\n")
    producer = bucket.producer(**queue.arguments(read="lines"))
    async with reading(producer) as stream:
        items = await stream.take(2)
        await stream.advance(items[:1])
        await until_count(queue, 1)
        assert ["Deleted or replaced" in text for text in producer.get_errors().values()] == [True]
    async with reading(bucket.producer(**queue.arguments(read="lines"))) as stream:
        items = await stream.take(1)
        assert [(raw.data, raw.position) for raw, _ in items] == [(b"2", 2)]
        await stream.advance(items)
        await until_count(queue, 0)


async def test_a_missing_queue_is_an_error(bucket: TestBucket, queue: EventQueue) -> None:
    missing = StorageQueue("no-such-queue", connection=bucket.connection)
    with pytest.raises(UpstreamError, match="QueueNotFound"):
        async with reading(bucket.producer(notifications=missing, interval=None)) as stream:
            await stream.take(1)
