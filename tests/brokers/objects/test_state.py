"""The state in the bucket: segments, merges, lost answers, and kills between any two writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.errors import StreamError, UpstreamError, UpstreamFenced
from headrace.sources.objects import state as state_module
from headrace.sources.objects.bucket import Bucket
from headrace.sources.objects.digests import DigestSet, split
from headrace.sources.objects.location import StoredObject
from headrace.sources.objects.state import OpenEntry, State
from support.sources.objects import TestBucket

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("objects"), pytest.mark.timeout(120)]

FOLDER = "in/.headrace/test/"


class UnreliableBucket:
    """A bucket whose requests fail, before or after the server has done them. `plan` has the writes that fail, counted from 1."""

    def __init__(self, bucket: Bucket, plan: dict[int, str]) -> None:
        self._bucket = bucket
        self._plan = plan
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    async def put(self, key: str, data: bytes, *, replaces: str | None) -> str:
        self.writes += 1
        failure = self._plan.get(self.writes)
        if failure == "before":
            raise StreamError("The request was lost.")
        etag = await self._bucket.put(key, data, replaces=replaces)
        if failure == "after":
            raise StreamError("The answer was lost.")
        return etag


@asynccontextmanager
async def opened(bucket: TestBucket, plan: dict[int, str] | None = None) -> AsyncIterator[State]:
    client = await bucket.open()
    try:
        state = State(UnreliableBucket(client, plan or {}), FOLDER, "test")
        while True:
            try:
                await state.open(None)
                break
            except StreamError as error:
                if isinstance(error, UpstreamFenced):
                    raise
        yield state
    finally:
        await client.aclose()


def digest(number: int) -> bytes:
    return StoredObject(f"key{number}", "etag", 1, 0).digest


async def committed(state: State) -> None:
    while True:
        try:
            await state.commit(None)
            return
        except StreamError as error:
            if isinstance(error, UpstreamFenced):
                raise


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "MAX_RECENT_DIGESTS", 3)
    monkeypatch.setattr(state_module, "MAX_SEGMENTS", 3)
    monkeypatch.setattr(state_module, "MIN_MISSING", 1)


@pytest.mark.parametrize("failure", ["none", "before", "after"])
async def test_every_commit_is_durable_whatever_write_fails(bucket: TestBucket, failure: str) -> None:
    """Each third write fails: of the head, of segments and of merged segments."""
    plan = dict.fromkeys(range(1, 1_000, 3), failure)
    expected = set[bytes]()
    for opening in range(3):
        async with opened(bucket, plan) as state:
            assert set(split(state.finished.packed())) == expected
            for number in range(25):
                expected.add(one := digest(100 * opening + number))
                state.finish(one)
                if number % 2:
                    await committed(state)
            await committed(state)
    async with opened(bucket) as state:
        assert set(split(state.finished.packed())) == expected
    segments = [key for key in bucket.state_keys() if key.endswith(".digests")]
    assert len(segments) <= state_module.MAX_SEGMENTS + 2


async def test_objects_in_progress_are_stored_until_they_are_finished(bucket: TestBucket) -> None:
    entry = OpenEntry("a", "etag", 10, 7, 4, 2, "v1")
    async with opened(bucket) as state:
        state.progress(entry.stored.digest, entry)
        await state.commit(None)
    async with opened(bucket) as state:
        assert dict(state.opened) == {entry.stored.digest: entry}
        state.finish(entry.stored.digest)
        await state.commit(None)
    async with opened(bucket) as state:
        assert dict(state.opened) == {}
        assert entry.stored.digest in state.finished


async def test_a_fenced_reader_writes_nothing_and_removes_nothing(bucket: TestBucket) -> None:
    async with opened(bucket) as first:
        for number in range(10):
            first.finish(digest(number))
            await first.commit(None)
        async with opened(bucket) as second:
            for number in range(10, 40):
                second.finish(digest(number))
                await second.commit(None)
            for number in range(50, 60):
                first.finish(digest(number))
            with pytest.raises(UpstreamFenced):
                await first.commit(None)
            await second.commit(None)
    async with opened(bucket) as third:
        assert set(split(third.finished.packed())) == {digest(number) for number in range(40)}


async def test_of_readers_that_open_at_the_same_time_one_is_left(bucket: TestBucket) -> None:
    async def compete() -> bool:
        try:
            async with opened(bucket) as state:
                for _ in range(10):
                    await asyncio.sleep(0.05)
                    await state.commit(None)
        except UpstreamFenced:
            return False
        return True

    assert sum(await asyncio.gather(*(compete() for _ in range(5)))) == 1


async def test_digests_of_deleted_objects_are_pruned(bucket: TestBucket) -> None:
    async with opened(bucket) as state:
        for number in range(20):
            state.finish(digest(number))
        await state.commit(None)
        await state.retain(DigestSet(b"".join(digest(number) for number in range(5))))
        state.finish(digest(99))
        await state.commit(None)
    async with opened(bucket) as state:
        assert set(split(state.finished.packed())) == {*(digest(number) for number in range(5)), digest(99)}


async def test_a_missing_segment_and_a_deleted_state_are_errors(bucket: TestBucket) -> None:
    async with opened(bucket) as state:
        for number in range(4):
            state.finish(digest(number))
        await state.commit(None)
        (segment,) = [key for key in bucket.state_keys() if key.endswith(".digests")]
        bucket.server.delete(bucket.name, segment)
        with pytest.raises(UpstreamError, match="A part of the state is missing"):
            async with opened(bucket):
                pass
        bucket.server.delete(bucket.name, f"{FOLDER}head.json")
        with pytest.raises(UpstreamError, match="was deleted while it was used"):
            await state.commit(None)
