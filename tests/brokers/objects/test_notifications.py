"""Notifications of a bucket in a queue of SQS, with listings and without them. The test sends what S3 would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus

import pytest

from headrace.testing.contract.reading import reading
from support.processes.elasticmq import shared as shared_queues
from support.sources.objects import TestBucket
from support.sources.sqs import SqsQueue

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.xdist_group("sqs"),
    pytest.mark.timeout(120),
    pytest.mark.parametrize("bucket", ["s3"], indirect=True),
]


@pytest.fixture
def queue() -> Iterator[SqsQueue]:
    queue = SqsQueue(shared_queues())
    yield queue
    queue.close()


def notify(queue: SqsQueue, bucket: TestBucket, name: str, content: bytes, event: str = "ObjectCreated:Put", **fields: Any) -> None:
    """Write an object, and send its notification."""
    etag = bucket.put(name, content)
    send(queue, bucket.name, f"in/{name}", event, {"size": len(content), "eTag": etag} | fields)


def send(queue: SqsQueue, bucket: str, key: str, event: str, fields: dict[str, Any]) -> None:
    described = {"bucket": {"name": bucket}, "object": {"key": quote_plus(key, safe="/")} | fields}
    queue.send([json.dumps({"Records": [{"eventName": event, "eventTime": "2026-11-23T12:00:00.000Z", "s3": described}]})])


async def until_empty(queue: SqsQueue) -> None:
    async with asyncio.timeout(20):
        while await asyncio.to_thread(queue.count) != (0, 0):
            await asyncio.sleep(0.05)


def arguments(queue: SqsQueue, **more: Any) -> dict[str, Any]:
    return {"notifications": queue.upstream(decode="s3"), "interval": None} | more


async def test_notified_objects_are_read_and_their_notifications_deleted_when_they_are_done(bucket: TestBucket, queue: SqsQueue) -> None:
    notify(queue, bucket, "a b+é", b"1")
    notify(queue, bucket, "b", b"2")
    async with reading(bucket.producer(**arguments(queue))) as stream:
        items = await stream.take(2)
        assert sorted(raw.key for raw, _ in items) == ["in/a b+é", "in/b"]
        await stream.advance(items[:1])
    async with reading(bucket.producer(**arguments(queue))) as stream:
        assert [raw.key for raw, _ in await stream.take(1)] == [items[1][0].key]
    assert sum(queue.count()) == 1


async def test_a_repeated_notification_of_a_finished_object_is_deleted(bucket: TestBucket, queue: SqsQueue) -> None:
    notify(queue, bucket, "a", b"1")
    async with reading(bucket.producer(**arguments(queue))) as stream:
        await stream.advance(await stream.take(1))
        notify(queue, bucket, "a", b"1")
        notify(queue, bucket, "c", b"3")
        items = await stream.take(1)
        assert [raw.key for raw, _ in items] == ["in/c"]
        await stream.advance(items)
        await until_empty(queue)


async def test_a_listing_finds_what_was_not_notified_and_nothing_is_read_twice(bucket: TestBucket, queue: SqsQueue) -> None:
    bucket.put("silent", b"0")
    for number in range(20):
        notify(queue, bucket, f"{number:02}", b"%d" % number)
    async with reading(bucket.producer(**arguments(queue, interval=0.5))) as stream:
        items = await stream.take(21)
        await stream.advance(items)
        await until_empty(queue)
        notify(queue, bucket, "end", b"end")
        last = await stream.take(1)
    assert sorted(raw.key for raw, _ in items) == sorted(["in/silent", *(f"in/{number:02}" for number in range(20))])
    assert last[0][0].key == "in/end"


async def test_lines_of_a_notified_object(bucket: TestBucket, queue: SqsQueue) -> None:
    notify(queue, bucket, "a.jsonl", b"1\n2\n")
    async with reading(bucket.producer(**arguments(queue, read="lines"))) as stream:
        items = await stream.take(2)
        await stream.advance(items[:1])
        assert queue.count() == (0, 1)
    async with reading(bucket.producer(**arguments(queue, read="lines"))) as stream:
        items = await stream.take(1)
        assert [(raw.data, raw.position) for raw, _ in items] == [(b"2", 2)]
        await stream.advance(items)
        await until_empty(queue)


async def test_removals_and_other_folders_are_deleted_and_foreign_messages_stay(bucket: TestBucket, queue: SqsQueue) -> None:
    send(queue, bucket.name, "in/a", "ObjectRemoved:Delete", {})
    send(queue, bucket.name, "out/a", "ObjectCreated:Put", {"eTag": "x", "size": 1})
    send(queue, "another-bucket", "in/a", "ObjectCreated:Put", {"eTag": "x", "size": 1})
    queue.send(["no json", '{"Event": "s3:TestEvent"}'])
    notify(queue, bucket, "z", b"z", eTag="")
    producer = bucket.producer(**arguments(queue))
    async with reading(producer) as stream:
        items = await stream.take(1)
        assert [raw.key for raw, _ in items] == ["in/z"]
        await stream.advance(items)
        async with asyncio.timeout(20):
            while sum(await asyncio.to_thread(queue.count)) != 2 or not producer.get_errors():
                await asyncio.sleep(0.05)
        assert list(producer.get_errors()) == ["notifications"]
    assert sum(queue.count()) == 2


async def test_a_notified_object_that_is_gone_is_named(bucket: TestBucket, queue: SqsQueue) -> None:
    send(queue, bucket.name, "in/gone.jsonl", "ObjectCreated:Put", {"eTag": "0" * 32, "size": 10})
    notify(queue, bucket, "here.jsonl", b"1\n")
    producer = bucket.producer(**arguments(queue, read="lines"))
    async with reading(producer) as stream:
        items = await stream.take(1)
        await stream.advance(items)
        await until_empty(queue)
        assert ["Deleted or replaced" in text for text in producer.get_errors().values()] == [True]
