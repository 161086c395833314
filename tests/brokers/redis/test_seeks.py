"""`headrace upstreams seek` on streams of Redis: entries are skipped or read again, also pending ones, and while triggerers are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.redis.entry_ids import position_of
from headrace.sources.redis.producer import RedisProducer
from headrace.sources.seeks.seek import preview_seek
from headrace.sources.seeks.target import parse_target
from headrace.testing.contract.reading import reading
from headrace.triggers.stream_log import LaneMove, LogState, StreamLog, StreamSeek
from support.processes.deployment import Deployment, until
from support.processes.seeks import SeekScene
from support.sources.reading import items_of, numbers, numbers_of
from support.sources.reading import until as until_moved
from support.sources.redis import RedisStream

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("redis-seeks"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Project, RedisStreams

project = Project("shop")
orders = RedisStreams({keys!r}, group="shop", connection={connection!r}, payload="data", lease=2)
project.watch("orders", orders, id="$.n")
"""


class Scene(SeekScene):
    """A deployment whose project reads stream keys."""

    def __init__(self, deployment: Deployment, stream: RedisStream, *keys: str) -> None:
        project = PROJECT.format(keys=list(keys) or [stream.key], connection=stream.connection)
        super().__init__(deployment, project, stream.connection)
        self.stream = stream

    def committed(self, id: str, key: str | None = None) -> None:
        state = f"headrace:shop:{key or self.stream.key}"
        until(lambda: self.stream.client.hget(state, "committed") == id, f"entry {id} is committed")

    def lag(self) -> Any:
        (group,) = self.stream.client.xinfo_groups(self.stream.key)
        return group["lag"]


@pytest.fixture
def deployment(tmp_path: Path, stream: RedisStream) -> Iterator[Deployment]:
    """Return a running deployment, after `stream`, which skips the test if its server is not installed."""
    del stream
    with Deployment.with_short_leases(tmp_path / "deployment") as deployment:
        yield deployment


def send(stream: RedisStream, first: int, last: int, key: str | None = None) -> list[str]:
    """Add entries whose times in milliseconds are 1,000 more than their numbers, and return their ids."""
    for number, value in zip(range(first, last), numbers(first, last), strict=True):
        stream.send([value], key, id=f"{1_000 + number}-0")
    return [f"{1_000 + number}-0" for number in range(first, last)]


def after(number: int) -> int:
    """Return the position after the entry with a number."""
    return position_of(f"{1_000 + number}-0") + 1


def test_a_running_triggerer_skips_and_reads_again(deployment: Deployment, stream: RedisStream) -> None:
    scene = Scene(deployment, stream)
    ids = send(stream, 0, 100)
    triggerer = deployment.triggerer(scene.project)
    scene.committed(ids[99])
    (again,) = scene.seek(ids[40])["seeks"]
    assert (again["state"], again["skipped"], again["read_again"]) == ("done", None, None)
    scene.committed(ids[99])
    ids += send(stream, 100, 110)
    scene.committed(ids[109])
    assert deployment.count_events() == 110, "an entry that is read again is no other event"
    read_again = (stream.key, "read again", after(40) - 1, after(99) - 1)
    assert scene.ranges() == [read_again]
    triggerer.stop()
    ids += send(stream, 110, 200)
    preview = scene.seek("latest", "--dry-run")
    assert (preview["skipped"], preview["read_again"]) == (90, 0)
    assert [(one["first"], one["end"], one["now"]) for one in preview["lanes"]] == [(after(0) - 1, after(199), after(109))]
    assert stream.client.hget(stream.state, "committed") == ids[109], "a preview moves nothing"
    (planned,) = scene.seek("latest", "--yes")["seeks"]
    assert planned["state"] == "planned", "nobody reads the stream"
    ids += send(stream, 200, 220)
    deployment.triggerer(scene.project)
    scene.committed(ids[219])
    assert deployment.count_events() == 130
    skipped = (stream.key, "skipped", after(109), after(199) - 1)
    assert scene.ranges() == [read_again, skipped]
    scene.seek(ids[150])
    until(lambda: deployment.count_events() == 180, "a part of the skipped entries")
    scene.committed(ids[219])
    assert scene.ranges() == sorted([read_again, skipped, (stream.key, "read again", after(150) - 1, after(219) - 1)])
    assert (stream.pending(), scene.lag()) == (0, 0)


@pytest.mark.parametrize("step", ["begin", "finish"])
def test_a_triggerer_that_is_killed_in_a_seek_is_followed_by_one_that_completes_it(
    deployment: Deployment, stream: RedisStream, step: str
) -> None:
    scene = Scene(deployment, stream)
    ids = send(stream, 0, 100)
    first = deployment.triggerer(scene.project)
    scene.committed(ids[99])
    first.stop()
    scene.seek(ids[40])
    scene.kill_in(step)
    assert (scene.lag(), scene.seeks()[0]["state"]) == {"begin": (0, "planned"), "finish": (60, "moving")}[step]
    ids += send(stream, 100, 103)
    deployment.triggerer(scene.project)
    scene.is_done()
    scene.committed(ids[102])
    assert deployment.count_events() == 103
    assert scene.ranges() == [(stream.key, "read again", after(40) - 1, after(99) - 1)]


def test_pending_entries_belong_to_the_skipped_range(deployment: Deployment, stream: RedisStream) -> None:
    """Another reader ended with entries that it had not acknowledged."""
    scene = Scene(deployment, stream)
    ids = send(stream, 0, 10)
    triggerer = deployment.triggerer(scene.project)
    scene.committed(ids[9])
    triggerer.stop()
    ids += send(stream, 10, 15)
    asyncio.run(take(stream.producer(), 5))
    ids += send(stream, 15, 18)
    assert stream.pending() == 5
    assert scene.seek("latest", "--dry-run")["skipped"] == 8
    scene.seek("latest", "--yes")
    ids += send(stream, 18, 20)
    deployment.triggerer(scene.project)
    scene.committed(ids[19])
    assert (deployment.count_events(), stream.pending(), scene.lag()) == (12, 0, 0)
    assert scene.ranges() == [(stream.key, "skipped", after(9), after(17) - 1)]
    deployment.balanced_stream()


async def take(producer: RedisProducer, count: int) -> None:
    async with reading(producer) as stream:
        await stream.take(count)


class Planned:
    """A seek of a lane, and what a reader records of it."""

    def __init__(self, lane: str, position: int) -> None:
        self.lanes = {lane: position}
        self.steps: list[Any] = []

    def of(self, producer: RedisProducer) -> RedisProducer:
        """Have a producer carry it out."""
        state = LogState("log", 0, seek=StreamSeek(self.lanes, self.begin, self.finish))

        async def look_up(_: str) -> LogState:
            return state

        producer.log = StreamLog("redis", state, look_up)
        return producer

    async def begin(self, moves: Mapping[str, LaneMove]) -> Mapping[str, int]:
        self.steps += moves.values()
        return {lane: move.position for lane, move in moves.items()}

    async def finish(self, lanes: Collection[str]) -> None:
        self.steps.append(list(lanes))


async def test_entries_that_failed_or_were_not_answered_are_read_from_the_position_on(stream: RedisStream) -> None:
    """Entry 3 failed, 8 and 9 were not answered. The lane is read from entry 6 on, and 3 is pending no more."""
    producer = stream.producer()
    ids = send(stream, 0, 10)
    async with reading(producer) as first:
        pairs = await first.take(10)
        await producer.advance(items_of(pairs[:8], failed=[3]))
    lane = str(producer.get_advance_lane(pairs[0][1]))
    assert [one["message_id"] for one in stream.client.xpending_range(stream.key, "shop", "-", "+", 20)] == [ids[3], *ids[8:]]
    (found,) = await preview_seek(stream.upstream(), parse_target(ids[6]))
    assert (found.now, found.position, found.messages) == (after(2), after(6) - 1, 3)
    seek = Planned(lane, found.position)
    async with reading(seek.of(stream.producer())) as second:
        pairs = await second.take(4)
        assert numbers_of(pairs) == [6, 7, 8, 9]
        assert [raw.delivery for raw, _ in pairs] == [1, 1, 1, 1]
        assert seek.steps == [LaneMove(after(2), after(6) - 1), [lane]]
        assert second.producer.get_committed(lane) == after(6) - 2
        (found,) = await preview_seek(stream.upstream(), parse_target("latest"))
        assert (found.now, found.messages) == (after(6) - 1, 4), "a seek begins where the last one ended, before anything is answered"
        await second.advance(pairs)
    assert stream.pending() == 0
    again = Planned(lane, after(9))
    async with reading(again.of(stream.producer())):
        await until_moved(lambda: len(again.steps) == 2)
    assert again.steps[0] == LaneMove(after(9), after(9))
    last = Planned(lane, 2**63 - 1)
    async with reading(last.of(stream.producer())) as third:
        await until_moved(lambda: len(last.steps) == 2)
        send(stream, 10, 11)
        assert numbers_of(await third.take(1)) == [10], "a position after the last entry is that after the last entry"


async def test_a_seek_counts_missing_entries_from_its_position_on(stream: RedisStream) -> None:
    """Entries that were trimmed before the seek are not missing. Those that are trimmed after it are."""
    ids = send(stream, 0, 10)
    await take(stream.producer(), 10)
    stream.client.xtrim(stream.key, minid=ids[4], approximate=False)
    (found,) = await preview_seek(stream.upstream(), parse_target("earliest"))
    assert (found.first, found.now, found.position) == (after(4) - 1,) * 3
    producer = Planned(found.lane, found.position).of(stream.producer())
    async with reading(producer) as second:
        assert numbers_of(await second.take(6)) == [4, 5, 6, 7, 8, 9]
        assert producer.get_errors() == {}
        assert producer.get_unread() == 0


async def test_a_seek_back_still_finds_an_entry_that_was_deleted_unread(stream: RedisStream) -> None:
    send(stream, 0, 10)
    async with reading(stream.producer()) as first:
        pairs = await first.take(10)
        await first.advance(pairs)
    ids = send(stream, 10, 15)
    stream.client.xdel(stream.key, ids[2])
    lane = str(first.producer.get_advance_lane(pairs[0][1]))
    async with reading(Planned(lane, after(5)).of(stream.producer())) as second:
        assert numbers_of(await second.take(8)) == [6, 7, 8, 9, 10, 11, 13, 14]
        assert "Entries are missing: 1 after" in second.producer.get_errors()[lane]
    assert stream.client.hget(stream.state, "lost") == "1"


async def test_a_seek_back_keeps_a_gap_that_is_not_passed(stream: RedisStream) -> None:
    send(stream, 0, 10)
    async with reading(stream.producer()) as first:
        pairs = await first.take(10)
        await first.advance(pairs[:9])
        pipeline = stream.client.pipeline(transaction=True)
        for number, value in enumerate(numbers(10, 15), 10):
            pipeline.xadd(stream.key, {"data": value}, id=f"{1_000 + number}-0")
        pipeline.xdel(stream.key, "1012-0")
        pipeline.execute()
        await until_moved(lambda: bool(stream.client.hexists(stream.state, "gap_to")))
    lane = str(first.producer.get_advance_lane(pairs[0][1]))
    async with reading(Planned(lane, after(5)).of(stream.producer())) as second:
        pairs = await second.take(4)
        assert numbers_of(pairs) == [6, 7, 8, 9]
        await second.advance(pairs)
        with pytest.raises(StreamError, match="are missing"):
            await second.take(1)
    async with reading(stream.producer()) as last:
        assert numbers_of(await last.take(4)) == [10, 11, 13, 14]
        assert last.producer.get_committed(lane) == after(10) - 2, "the audit has a gap before entry 10"


def test_named_lanes_move_to_a_time_and_to_an_id(deployment: Deployment, stream: RedisStream) -> None:
    other = f"{stream.key}:us"
    scene = Scene(deployment, stream, stream.key, other)
    ids = send(stream, 0, 10)
    send(stream, 0, 10, other)
    first = deployment.triggerer(scene.project)
    scene.committed(ids[9])
    scene.committed(ids[9], other)
    first.stop()
    ids += send(stream, 10, 20)
    send(stream, 10, 20, other)
    time = datetime.fromtimestamp(1.015, UTC).isoformat()
    scene.seek(f"{stream.key}={time},{other}={ids[5]}", "--yes")
    deployment.triggerer(scene.project)
    scene.is_done()
    scene.committed(ids[19])
    scene.committed(ids[19], other)
    assert scene.ranges() == sorted(
        [(stream.key, "skipped", after(9), after(15) - 2), (other, "read again", after(5) - 1, after(9) - 1)],
    )
    deployment.balanced_stream()


async def test_a_preview_shows_positions_and_rejects_what_does_not_fit(stream: RedisStream) -> None:
    ids = send(stream, 0, 10)
    with pytest.raises(UpstreamError, match="has not read it yet"):
        await preview_seek(stream.upstream(), parse_target("latest"))
    producer = stream.producer()
    async with reading(producer) as first:
        await first.advance((await first.take(10))[:4])

    async def positions(to: str) -> list[tuple[int, int, int | None]]:
        return [(one.now, one.position, one.messages) for one in await preview_seek(stream.upstream(), parse_target(to))]

    now = after(3)
    assert await positions("earliest") == [(now, after(0) - 1, 4)]
    assert await positions("latest") == [(now, after(9), 6)]
    assert await positions("1970-01-01T00:00:01.0055Z") == [(now, after(6) - 1, 2)], "entry 5 is before this time"
    assert await positions("2100-01-01T00:00:00Z") == [(now, after(9), 6)]
    assert await positions(f"{stream.key}={ids[1]}") == [(now, after(1) - 1, 3)]
    assert stream.client.hget(stream.state, "committed") == ids[3]
    for to, text in (("other=latest", "There is no lane"), ("999-0", "has no position"), (str(after(9) + 1), "has no position")):
        with pytest.raises(UpstreamError, match=text):
            await preview_seek(stream.upstream(), parse_target(to))
    stream.client.delete(stream.key)
    send(stream, 0, 1)
    with pytest.raises(UpstreamError, match="created again"):
        await preview_seek(stream.upstream(), parse_target("latest"))
