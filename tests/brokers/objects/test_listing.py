"""Listings are exact over restarts: late keys, replaced and deleted objects, odd keys, and a second reader."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import UpstreamError, UpstreamFenced
from headrace.testing.contract.reading import opened, reading
from support.sources.objects import TestBucket

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("objects"), pytest.mark.timeout(120)]

ACKED = AdvanceOutcome(1, 0)
FAILED = AdvanceOutcome(0, 1)
SILENCE_SECONDS = 1.0
"""Several listings."""


def names(items: list[tuple[Any, Any]]) -> list[str]:
    return [raw.value["key"].removeprefix("in/") for raw, _ in items]


async def is_silent(stream: Any) -> bool:
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            await stream.take(1)
    except TimeoutError:
        return True
    return False


async def test_an_object_becomes_a_raw_event_with_its_metadata(bucket: TestBucket) -> None:
    etag = bucket.put("a.json", b"12345")
    async with reading(bucket.producer()) as stream:
        ((raw, _),) = await stream.take(1)
    assert raw.value | {"last_modified": ""} == {
        "bucket": bucket.name,
        "key": "in/a.json",
        "size": 5,
        "etag": etag,
        "last_modified": "",
        "version": None,
    }
    assert (raw.key, raw.position, raw.timestamp.isoformat()) == (
        "in/a.json",
        None,
        raw.value["last_modified"].replace("Z", "+00:00"),
    )


async def test_a_reader_that_takes_nothing_for_several_listings_goes_on_with_all_objects(bucket: TestBucket) -> None:
    expected = [f"m{number:03}" for number in range(120)]
    for name in expected[:100]:
        bucket.put(name, b"x")
    producer = bucket.producer()
    async with opened(producer) as stream:
        items = [await anext(stream)]
        await asyncio.sleep(SILENCE_SECONDS)
        for name in expected[100:]:
            bucket.put(name, b"x")
        await asyncio.sleep(SILENCE_SECONDS)
        items += [await anext(stream) for _ in range(119)]
    assert sorted(names(items)) == expected
    await producer.advance([AdvanceItem(payload, ACKED) for _, payload in items])
    await producer.aclose()
    async with reading(bucket.producer()) as again:
        assert await is_silent(again)


async def test_finished_objects_are_not_read_again_and_a_late_key_is_read(bucket: TestBucket) -> None:
    for number in range(50):
        bucket.put(f"m{number:03}", b"x%d" % number)
    async with reading(bucket.producer()) as stream:
        items = await stream.take(50)
        await stream.advance(items[10:])
        again = names(items[:10])
    bucket.put("a-late", b"late")
    async with reading(bucket.producer()) as stream:
        items = await stream.take(11)
        assert sorted(names(items)) == sorted(["a-late", *again])
        await stream.advance(items)
        assert await is_silent(stream)
        bucket.put("a-later", b"later")
        assert names(await stream.take(1)) == ["a-later"]


async def test_the_id_of_an_object_stays_the_same_until_it_is_replaced(bucket: TestBucket) -> None:
    bucket.put("a", b"1")
    async with reading(bucket.producer()) as stream:
        ((first, _),) = await stream.take(1)
    async with reading(bucket.producer()) as stream:
        ((again, _),) = items = await stream.take(1)
        await stream.advance(items)
        bucket.put("a", b"2")
        ((replaced, _),) = await stream.take(1)
    assert first.id == again.id != replaced.id


async def test_lines_of_a_replaced_object_are_read_as_another_lane(bucket: TestBucket) -> None:
    bucket.put("a.jsonl", [b"1", b"2"])
    async with reading(bucket.producer(read="lines")) as stream:
        items = await stream.take(2)
        await stream.advance(items)
        bucket.put("a.jsonl", [b"1", b"2", b"3"])
        more = await stream.take(3)
    assert [raw.data for raw, _ in more] == [b"1", b"2", b"3"]
    assert items[0][0].lane != more[0][0].lane


async def test_an_object_replaced_before_it_was_done_is_named(bucket: TestBucket) -> None:
    bucket.put("a.jsonl", [b'"%s"' % (b"x" * 100_000)] * 20)
    producer = bucket.producer(read="lines")
    stream = aiter(producer.open_stream())
    raw, payload = await anext(stream)
    await producer.advance([AdvanceItem(payload, ACKED)])
    bucket.put("a.jsonl", [b"1"])
    while raw.data != b"1":
        raw, _ = await anext(stream)
    assert [error.split(" after")[0] for error in producer.get_errors().values()] == ["Deleted or replaced"]
    await stream.aclose()  # type: ignore[attr-defined]
    await producer.aclose()


async def test_a_failed_object_is_read_again_at_the_next_opening_only(bucket: TestBucket) -> None:
    for name in "abc":
        bucket.put(name, name.encode())
    producer = bucket.producer()
    async with reading(producer) as stream:
        items = await stream.take(3)
        await producer.advance([AdvanceItem(payload, FAILED if raw.key == "in/b" else ACKED) for raw, payload in items])
        assert await is_silent(stream)
    async with reading(bucket.producer()) as stream:
        assert names(await stream.take(1)) == ["b"]
        assert await is_silent(stream)


async def test_odd_keys_are_read(bucket: TestBucket) -> None:
    odd = ["é", "x y", "%41", "a#b", "\U0001f600", "a+b", "tab\tq", "q?", "z&<>", "deep/er/and/deeper", "back\\slash", "'\""]
    if bucket.server.scheme == "az":
        odd.remove("back\\slash")  # it is a slash there
    for name in odd:
        bucket.put(name, b'"x"\n')
    async with reading(bucket.producer()) as stream:
        assert sorted(names(await stream.take(len(odd)))) == sorted(odd)
    async with reading(bucket.producer(read="lines")) as stream:
        items = await stream.take(len(odd))
        assert sorted(raw.key for raw, _ in items) == sorted(f"in/{name}" for name in odd)
        assert all(raw.lane.isprintable() for raw, _ in items)
        await stream.advance(items)
    async with reading(bucket.producer(read="lines")) as stream:
        assert await is_silent(stream)


@pytest.mark.parametrize("bucket", ["gs", "az"], indirect=True)
async def test_keys_with_empty_parts_and_dots_are_read(bucket: TestBucket) -> None:
    """A file system, as that of the server for S3, has no such keys."""
    odd = ["a//b", "/a", "a", "a/b"]
    if bucket.server.scheme == "gs":
        odd += ["x/../y", "./z"]  # Azure resolves such names when it stores them
    for name in odd:
        bucket.put(name, b"1\n")
    async with reading(bucket.producer(read="lines")) as stream:
        items = await stream.take(len(odd))
        assert sorted(raw.key for raw, _ in items) == sorted(f"in/{name}" for name in odd)
        await stream.advance(items)
    async with reading(bucket.producer(read="lines")) as stream:
        assert await is_silent(stream)


async def test_odd_contents_of_objects(bucket: TestBucket) -> None:
    bucket.put("empty", b"")
    bucket.put("blank", b"\n\n  \n")
    bucket.put("long", b'"' + b"x" * 3_000_000 + b'"\n2')
    bucket.put("no-end", b'\xef\xbb\xbf1\r\n"\xff"')
    async with reading(bucket.producer(read="lines")) as stream:
        items = await stream.take(4)
        lines = {(raw.key.removeprefix("in/"), raw.position): raw for raw, _ in items}
        assert sorted(lines) == [("long", 0), ("long", 3_000_003), ("no-end", 0), ("no-end", 6)]
        assert "longer than" in lines["long", 0].malformed
        assert (lines["no-end", 0].data, lines["no-end", 6].data) == (b"1", b'"\xff"')
        await stream.advance(items)
    async with reading(bucket.producer(read="lines")) as stream:
        assert await is_silent(stream)


async def test_objects_outside_of_the_pattern_and_states_of_others_are_not_read(bucket: TestBucket) -> None:
    bucket.put("a.csv", b"a")
    bucket.put("folder/b.json", b"b")
    bucket.server.put(bucket.name, "inbox/c.json", b"c")
    async with reading(bucket.producer(pattern="*.csv")) as stream:
        assert names(await stream.take(1)) == ["a.csv"]
    async with reading(bucket.producer(pattern="*.json")) as stream:
        assert names(await stream.take(1)) == ["folder/b.json"]
        assert await is_silent(stream)
    async with reading(bucket.producer()) as stream:
        assert sorted(names(await stream.take(2))) == ["a.csv", "folder/b.json"]
        assert await is_silent(stream)


async def test_a_second_reader_fences_the_first(bucket: TestBucket) -> None:
    for number in range(4):
        bucket.put(str(number), b"%d" % number)
    first = bucket.producer()
    async with reading(first) as stream:
        items = await stream.take(4)
        await stream.advance(items[:1])
        async with reading(bucket.producer()) as second:
            taken = await second.take(3)
            with pytest.raises(UpstreamFenced):
                await stream.advance(items[1:2])
            assert names(taken) == names(items[1:])
            await second.advance(taken)
    async with reading(bucket.producer()) as third:
        assert await is_silent(third)


async def test_a_state_of_another_kind_and_a_missing_bucket_are_errors(bucket: TestBucket) -> None:
    async with reading(bucket.producer()) as stream:
        bucket.put("a", b"a")
        await stream.take(1)
    (head,) = bucket.state_keys()
    bucket.server.put(bucket.name, head, b'{"format": 1}')
    with pytest.raises(UpstreamError, match="is not the state of an upstream"):
        await anext(aiter(bucket.producer().open_stream()))
    bucket.name, name = "no-such-bucket", bucket.name
    try:
        with pytest.raises(UpstreamError, match=r"does not exist|Not Found"):
            await anext(aiter(bucket.producer().open_stream()))
    finally:
        bucket.name = name
