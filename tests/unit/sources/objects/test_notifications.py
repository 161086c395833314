"""Notifications that name no new object are deleted, also if the first deletion fails."""

from __future__ import annotations

import asyncio

from headrace.sources.objects.bucket import Missing
from headrace.sources.objects.digests import DigestSet
from headrace.sources.objects.location import Selection, StoredObject
from headrace.sources.objects.notifications import Notifications
from headrace.sources.objects.s3.notification import parse_notification
from headrace.sources.objects.tracker import Tracker
from unit.sources.objects.test_producer import MemoryBucket, MemoryQueue, MemoryQueueProducer, notification, until


def notifications(queue: MemoryQueue, bucket: MemoryBucket) -> Notifications:
    return Notifications(MemoryQueueProducer(queue), parse_notification, bucket, "b", Selection("in/", "*", None), Tracker(DigestSet()))


async def test_a_deletion_that_failed_is_repeated_when_the_message_comes_again() -> None:
    queue = MemoryQueue(failing=1)
    queue.send("m1", notification("out/a", 8, "e1"))
    reading = notifications(queue, MemoryBucket())
    receiving = asyncio.create_task(reading.next())
    try:
        await until(lambda: not queue.failing and not reading._deletions)
        opened = reading._producer._opened
        assert opened is not None
        assert len(opened.leases) == 0  # it is not extended, and becomes visible
        queue.send("m1", notification("out/a", 8, "e1"))
        await until(lambda: queue.acknowledged == ["m1"])
    finally:
        receiving.cancel()
        await asyncio.wait([receiving])
        await reading.aclose()


async def test_an_incomplete_notification_is_completed_by_a_request_for_its_version() -> None:
    class Heads(MemoryBucket):
        async def head(self, key: str, version: str | None = None) -> StoredObject:
            if version == "gone":
                raise Missing(key)
            return StoredObject(key, "e1", 8, 0, version)

    queue = MemoryQueue()
    queue.send("m1", notification("in/a", 0, "e1", versionId="gone"))
    queue.send("m2", notification("in/a", 0, "e1", versionId="v1"))
    reading = notifications(queue, Heads())
    try:
        tracked = await asyncio.wait_for(reading.next(), 20)
        assert tracked.stored == StoredObject("in/a", "e1", 8, 0, "v1")
        await until(lambda: queue.acknowledged == ["m1"])
    finally:
        await reading.aclose()
