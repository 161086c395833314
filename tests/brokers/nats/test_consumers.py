"""The consumers: who reads with them, where they begin, and what happens when they or their stream are deleted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import Nats
from headrace.errors import StreamError, UpstreamError, UpstreamFenced
from headrace.sources.nats.subjects import FLOOR_SUFFIX
from headrace.testing.contract.reading import reading
from headrace.triggers.stream_log import LogState, StreamLog
from support.processes.nats import Version
from support.sources.nats import MakeStream, NatsStream
from support.sources.reading import cancel_reader, items_of, numbers, take_to, until

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("nats")]


def read_before(receipts: int = 5, log: str = "log") -> StreamLog:
    async def look_up(stream: str) -> LogState:
        return LogState(log, 0)

    return StreamLog("nats:test", LogState(log, receipts), look_up)


async def first_number(source: NatsStream, *lanes: str, log: StreamLog | None = None, **arguments: Any) -> int:
    """Open the upstream, and return the number in the first message."""
    producer = source.producer(*lanes, **arguments)
    producer.log = log
    async with reading(producer) as reader:
        return int((await reader.take(1))[0][0].value["n"])


async def test_a_new_reader_fences_the_first_one_and_goes_on_after_what_it_advanced(stream: NatsStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as first:
        items = await first.take(10)
        await first.advance(items[:4])
        async with reading(stream.producer()) as second:
            assert [raw.value["n"] for raw, _ in await second.take(6)] == list(range(4, 10))
            with pytest.raises(UpstreamFenced, match="Another reader has taken over"):
                await first.take(1)
            with pytest.raises(UpstreamFenced):
                await first.producer.advance(items_of(items[4:]))
            assert second.producer.get_committed(items[0][0].lane) == 4
            assert stream.floor() in (0, 4)  # 2.9 says 0 until the new consumer has its first acknowledgement
    assert stream.consumers() == [stream.consumer()]


async def test_a_program_that_takes_messages_of_the_consumer_is_found_before_a_later_one_is_delivered(stream: NatsStream) -> None:
    """Nothing in an old server refuses it. An acknowledgement of a later message would include those that it took."""
    stream.send(numbers(0, 3))
    async with reading(stream.producer()) as reader:
        await reader.advance(await reader.take(3))
        await stream.take_with_other_program(stream.consumer())
        for number in range(3, 9):
            stream.send(numbers(number, number + 1))
        with pytest.raises(StreamError, match="went to another program"):
            await reader.take(6)
        taken = reader.producer.get_committed(next(iter(reader.producer._lanes)))  # type: ignore[attr-defined]
        assert taken == 3
    await stream.end_other_program()
    async with reading(stream.producer()) as reader:
        assert [raw.value["n"] for raw, _ in await reader.take(6)] == list(range(3, 9))


async def test_a_program_that_takes_the_last_messages_is_found(stream: NatsStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.nats.reader.WATCH_SECONDS", 0.2)
    async with reading(stream.producer()) as reader:
        stream.send(numbers(0, 1))
        await reader.take(1)
        await stream.take_with_other_program(stream.consumer())
        stream.send(numbers(1, 2))  # goes to this reader, whose request is older, or to the other program
        for number in range(2, 6):
            stream.send(numbers(number, number + 1))
        with pytest.raises(StreamError, match="went to another program"):
            await reader.take(6)
    await stream.end_other_program()


@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
async def test_all_retentions_are_read_to_the_end(make_stream: MakeStream, retention: str) -> None:
    stream = make_stream(retention=retention)
    async with reading(stream.producer("a", "b")) as reader:
        await until(lambda: len(stream.consumers()) == 2)
        stream.send(numbers(0, 10), "a")
        stream.send(numbers(10, 20), "b")
        items = await reader.take(20)
        lane = reader.producer.get_advance_lane(items[0][1])
        await reader.advance(item for item in items[:15] if reader.producer.get_advance_lane(item[1]) == lane)
    async with reading(stream.producer("a", "b")) as reader:
        rest = await reader.take(20 - len([item for item in items[:15] if item[0].lane == lane]))
        await reader.advance(rest)
        assert reader.producer.get_errors() == {} or retention != "limits"
    kept = stream.server.api(f"STREAM.INFO.{stream.name}")["state"]["messages"]
    assert kept == (20 if retention == "limits" else 0)


async def test_an_opening_that_was_killed_between_its_steps_loses_nothing(stream: NatsStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as reader:
        await reader.advance((await reader.take(10))[:6])
    name, api = stream.consumer(), stream.server.api
    config = api(f"CONSUMER.INFO.{stream.name}.{name}")["config"]
    floor = (
        config
        | {"durable_name": name + FLOOR_SUFFIX, "name": name + FLOOR_SUFFIX}
        | {"deliver_policy": "by_start_sequence", "opt_start_seq": 7}
    )

    def create_floor() -> None:
        answer = api(f"CONSUMER.DURABLE.CREATE.{stream.name}.{name}{FLOOR_SUFFIX}", {"stream_name": stream.name, "config": floor})
        assert "error" not in answer, answer

    create_floor()  # killed before the deletion
    assert await first_number(stream, log=read_before()) == 6
    assert stream.consumers() == [name]
    create_floor()
    api(f"CONSUMER.DELETE.{stream.name}.{name}")  # killed after the deletion
    assert await first_number(stream, log=read_before()) == 6
    assert stream.consumers() == [name]
    async with reading(stream.producer()) as reader:
        await reader.advance((await reader.take(4))[:2])
    create_floor()  # killed after the new consumer was created: its own floor counts
    assert await first_number(stream, log=read_before()) == 8


async def test_start_counts_for_the_first_reading_only(stream: NatsStream) -> None:
    stream.send(numbers(0, 10))
    await asyncio.sleep(0.01)
    time = datetime.now(UTC)
    stream.send(numbers(10, 20))
    assert await first_number(stream, durable="sequence", start=5) == 4
    assert await first_number(stream, durable="time", start=time) == 10
    assert await first_number(stream, durable="time", start=time) == 10
    async with reading(stream.producer(durable="latest", start="latest")) as reader:
        await until(lambda: len(stream.consumers()) == 3)
        stream.send(numbers(20, 21))
        assert (await reader.take(1))[0][0].value["n"] == 20
    stream.send(numbers(21, 22))
    assert await first_number(stream, durable="latest", start="latest") == 20
    async with reading(stream.producer(durable="time", start=time)) as reader:
        await reader.advance((await reader.take(12))[:3])
        assert reader.producer.get_errors() == {}
    assert await first_number(stream, durable="time", start="earliest") == 13


async def test_a_subject_that_is_added_begins_at_start(stream: NatsStream) -> None:
    stream.send(numbers(0, 2), "a")
    stream.send(numbers(2, 4), "b")
    async with reading(stream.producer("a")) as reader:
        await reader.advance(await reader.take(2))
    async with reading(stream.producer("a", "b", start="latest")) as reader:
        await until(lambda: len(stream.consumers()) == 2)
        stream.send(numbers(4, 5), "b")
        assert [raw.value["n"] for raw, _ in await reader.take(1)] == [4]


async def test_a_deleted_consumer_is_recognised(stream: NatsStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.nats.reader.WATCH_SECONDS", 0.2)
    stream.send(numbers(0, 4))
    async with reading(stream.producer()) as reader:
        await reader.advance(await reader.take(4))
        stream.server.api(f"CONSUMER.DELETE.{stream.name}.{stream.consumer()}")
        with pytest.raises(UpstreamFenced, match="it was deleted"):
            await reader.take(1)
    with pytest.raises(UpstreamError, match=r"Messages may be lost: consumer .* was deleted"):
        await first_number(stream, start="latest", log=read_before())
    producer = stream.producer()
    producer.log = read_before()
    async with reading(producer) as reader:
        again = await reader.take(4)
        assert [raw.position for raw, _ in again] == [1, 2, 3, 4]
        assert "was deleted" in producer.get_errors()[stream.consumer()]


async def test_one_deleted_consumer_of_several_is_recognised_by_the_notes_of_the_others(stream: NatsStream) -> None:
    stream.send(numbers(0, 2), "a")
    stream.send(numbers(2, 4), "b")
    async with reading(stream.producer("a", "b")) as reader:
        await reader.advance(await reader.take(4))
    stream.server.api(f"CONSUMER.DELETE.{stream.name}.{stream.consumer(f'{stream.name}.b')}")
    with pytest.raises(UpstreamError, match="Messages may be lost"):
        await first_number(stream, "a", "b", start="latest")
    assert await first_number(stream, "a", "b") == 2


async def test_a_stream_that_was_created_again_has_other_lanes(stream: NatsStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.nats.reader.WATCH_SECONDS", 0.2)
    stream.send(numbers(0, 4))
    async with reading(stream.producer()) as reader:
        items = await reader.take(4)
        await reader.advance(items[:2])
        stream.make_again()
        with pytest.raises(StreamError, match="deleted"):
            await reader.take(1)
    stream.send(numbers(10, 12))
    async with reading(stream.producer()) as reader:
        again = await reader.take(2)
        assert [(raw.value["n"], raw.position) for raw, _ in again] == [(10, 1), (11, 2)]
        assert {raw.lane for raw, _ in again}.isdisjoint(raw.lane for raw, _ in items)


async def test_another_event_log_is_refused(stream: NatsStream) -> None:
    stream.send(numbers(0, 2))
    assert await first_number(stream, log=read_before(5)) == 0
    assert await first_number(stream, log=read_before(5)) == 0
    with pytest.raises(UpstreamError, match="it has another database"):
        await first_number(stream, log=read_before(5, log="another"))
    with pytest.raises(UpstreamError, match="restored from a backup"):
        await first_number(stream, log=read_before(3))


async def test_removed_messages_are_a_named_gap(make_stream: MakeStream) -> None:
    stream = make_stream(max_msgs=10)
    stream.send(numbers(0, 5))
    async with reading(stream.producer()) as reader:
        await reader.advance((await reader.take(5))[:3])
    stream.send(numbers(5, 30))  # the server counts 4 and 5, which were delivered, as acknowledged when it removes them
    async with reading(stream.producer()) as reader:
        items = await reader.take(10)
        assert [raw.value["n"] for raw, _ in items] == list(range(20, 30))
        (text,) = reader.producer.get_errors().values()
        assert text.startswith("Messages 6 to 20 of the stream are missing. The server removed them")
        await reader.advance(items)
        assert stream.floor() == 30


async def test_a_purge_and_deletions_while_the_stream_is_read_are_named_gaps(stream: NatsStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.nats.reader.WATCH_SECONDS", 0.2)
    monkeypatch.setattr("headrace.sources.nats.reader.BATCH_MESSAGES", 4)
    stream.send(numbers(0, 20))
    producer = stream.producer()
    iterator = producer.open_stream()
    seen = [await anext(iterator) for _ in range(2)]
    stream.server.api(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 7})
    while seen[-1][0].value["n"] != 8:
        seen.append(await anext(iterator))
    assert [raw.value["n"] for raw, _ in seen] == [0, 1, 2, 3, 4, 5, 7, 8]
    assert any("Messages 7 to 7 of the stream are missing" in text for text in producer.get_errors().values())
    stream.server.api(f"STREAM.PURGE.{stream.name}")
    await until(lambda: any(" to 20 of the stream are missing" in text for text in producer.get_errors().values()))
    await iterator.aclose()  # type: ignore[attr-defined]
    await producer.aclose()


async def test_removed_messages_of_another_lane_are_no_gap_while_the_stream_is_read(
    make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.nats.reader.WATCH_SECONDS", 0.1)
    stream = make_stream(max_msgs=20)
    stream.send(numbers(0, 1), "a")
    async with reading(stream.producer("a", "b")) as reader:
        await reader.advance(await reader.take(1))
        for first in range(0, 100, 10):
            stream.send(numbers(first, first + 10), "b")
            await reader.advance(await reader.take(10))
            seen = reader.producer._lanes  # type: ignore[attr-defined]
            await until(lambda end=2 + first + 9, lanes=seen: all(lane.seen >= end for lane in lanes.values()))  # type: ignore[misc]
        assert reader.producer.get_errors() == {}


@pytest.mark.parametrize("kind", ["mirror", "sources"])
async def test_other_messages_of_a_stream_with_an_origin_are_no_gap(stream: NatsStream, make_stream: MakeStream, kind: str) -> None:
    """Such a stream has no subjects of its own, and a subject filter reads only some of its messages."""
    origin = {"name": stream.name}
    copy = make_stream(subjects=[], **({"mirror": origin} if kind == "mirror" else {"sources": [origin]}))
    eu = f"{stream.name}.eu"
    for first in (0, 4):
        stream.send(numbers(first, first + 3), "us")
        stream.send(numbers(first + 3, first + 4), "eu")
        async with reading(Nats(eu, stream=copy.name, durable="shop", connection=copy.connection).producer()) as reader:
            items = await reader.take(1)
            assert [raw.value["n"] for raw, _ in items] == [first + 3]
            await reader.advance(items)
            assert reader.producer.get_errors() == {}
            assert reader.producer.get_committed(items[0][0].lane) == items[0][0].position


async def test_a_mirror_of_some_subjects_has_no_gap_where_the_others_are(stream: NatsStream, make_stream: MakeStream) -> None:
    mirror = make_stream(subjects=[], mirror={"name": stream.name, "filter_subject": f"{stream.name}.eu"})
    for first in (0, 4):
        stream.send(numbers(first, first + 3), "us")
        stream.send(numbers(first + 3, first + 4), "eu")
    async with reading(mirror.producer()) as reader:
        items = await reader.take(2)
        assert [raw.value["n"] for raw, _ in items] == [3, 7]
        assert reader.producer.get_errors() == {}


async def test_what_is_missing_or_unusable_is_named(stream: NatsStream, make_stream: MakeStream, version: Version) -> None:
    async def expect(kind: type[Exception], text: str, *lanes: str, **arguments: Any) -> None:
        with pytest.raises(kind, match=text):
            await first_number(stream, *lanes, **arguments)

    await expect(UpstreamError, "Stream 'missing' cannot be read: stream not found", stream="missing")
    work = make_stream(retention="workqueue")
    await expect(UpstreamError, "is a work queue", stream=work.name, start="latest")
    stream.set_connection("nats://127.0.0.1:1")
    await expect(StreamError, "does not answer")
    stream.set_connection("http://127.0.0.1")
    await expect(UpstreamError, "is of kind 'http'")
    stream.set_connection(f"nats://{stream.server.address}")
    name = stream.consumer()
    config = {"durable_name": name, "deliver_subject": "there", "ack_policy": "explicit"}
    stream.server.api(f"CONSUMER.DURABLE.CREATE.{stream.name}.{name}", {"stream_name": stream.name, "config": config})
    await expect(UpstreamError, "belongs to another program")


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_a_reader_cancelled_at_any_await_leaves_the_consumer_to_the_next(stream: NatsStream, steps: int) -> None:
    stream.send(numbers(0, 3))
    await cancel_reader(stream.producer(), steps, pause=0.0005)
    stream.send(numbers(3, 4))
    async with reading(stream.producer()) as reader:
        taken = await take_to(reader, 3)
    assert taken == list(range(taken[0], 4))
