"""Leases, acknowledgements of a reader that was replaced, cancellation, and what connections and servers refuse."""

from __future__ import annotations

import asyncio
import secrets
from itertools import pairwise

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import HeadraceError, StreamError, UpstreamError, UpstreamFenced
from headrace.sources.connections.probes import probe_connection
from headrace.testing.contract.reading import opened, reading
from support.sources.reading import items_of, numbers, numbers_of, until_in_thread
from support.sources.redis import RedisStream

COMMANDS = (
    "+@connection +info +eval +multi +exec +xread +xreadgroup +xack +xgroup +xinfo +xpending +xrange "
    "+get +set +del +pttl +hget +hset +hdel +hgetall +hincrby"
)
"""As the guide lists them."""

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("redis")]


async def test_a_second_reader_is_refused_while_the_first_one_reads(stream: RedisStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as first:
        items = await first.take(10)
        with pytest.raises(StreamError, match="has another reader") as raised:
            async with reading(stream.producer()) as second:
                await second.take(1)
        assert "a group of its own" in (raised.value.hint or "")
        await first.advance(items[:4])
        stream.send(numbers(10, 11))
        assert numbers_of(await first.take(1)) == [10]


async def test_colons_in_groups_and_stream_keys_separate_nothing(stream: RedisStream) -> None:
    """Group `a` with stream `b:KEY` and group `a:b` with stream `KEY` have the same parts."""
    key, longer = stream.key, f"b:{stream.key}"
    stream.send(numbers(0, 3))
    stream.send(numbers(3, 6), longer)
    for _ in range(2):
        async with reading(stream.upstream(group="a:b").producer()) as one, reading(stream.upstream(longer, group="a").producer()) as other:
            items, others = await one.take(3), await other.take(3)
            assert (numbers_of(items), numbers_of(others)) == ([0, 1, 2], [3, 4, 5])
    async with reading(stream.upstream(group="a:b").producer()) as one, reading(stream.upstream(longer, group="a").producer()) as other:
        await one.advance(await one.take(3))
        await other.advance(await other.take(3))
        assert (one.producer.get_errors(), other.producer.get_errors()) == ({}, {})
    assert stream.client.exists(f"headrace:a%3Ab:{key}", f"headrace:a:{longer}") == 2


async def test_a_reader_that_takes_nothing_keeps_its_lease(stream: RedisStream) -> None:
    stream.send(numbers(0, 10))
    producer = stream.producer(lease=4)
    async with opened(producer) as first:
        await anext(first)
        with pytest.raises(StreamError, match="has another reader"):
            async with reading(stream.producer(lease=6)) as second:  # waits for longer than the first one's lease
                await second.take(1)
    await producer.aclose()


async def test_a_reader_whose_lease_has_expired_is_fenced(stream: RedisStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as first:
        items = await first.take(10)
        await first.advance(items[:2])
        stream.client.delete(f"{stream.state}:lease")
        # The first one takes its lease again unless another reader is quicker, so the second one is started as one step.
        stream.client.hset(stream.state, "holder", "another")
        with pytest.raises(UpstreamFenced, match="has taken over"):
            await first.advance(items[2:5])
        with pytest.raises(UpstreamFenced):
            await first.take(1)
        assert stream.pending() == 8
    async with reading(stream.producer()) as second:
        again = await second.take(8)
        assert [(raw.lane, raw.position) for raw, _ in again] == [(raw.lane, raw.position) for raw, _ in items[2:]]
        await second.advance(again)
    assert stream.pending() == 0


async def test_a_reader_that_stood_still_is_replaced_when_its_lease_has_ended(stream: RedisStream) -> None:
    """As a process that was suspended: it neither reads nor renews, and goes on after another reader has begun."""
    stream.send(numbers(0, 10))
    first = stream.producer()
    async with opened(first) as still:
        items = [await anext(still) for _ in range(5)]
        assert first._beat is not None
        first._beat.cancel()
        await asyncio.gather(first._beat, return_exceptions=True)
        async with reading(stream.producer()) as second:
            again = await second.take(10)
            assert [(raw.lane, raw.position) for raw, _ in again[:5]] == [(raw.lane, raw.position) for raw, _ in items]
            with pytest.raises(UpstreamFenced, match="has taken over"):
                await first.advance(items_of(items))
            assert stream.pending() == 10
            await second.advance(again)
            assert stream.pending() == 0
    await first.aclose()


async def test_the_next_reader_starts_at_once_after_a_close(stream: RedisStream) -> None:
    async with reading(stream.producer(lease=600)) as first:
        stream.send(numbers(0, 1))
        await first.take(1)
    async with reading(stream.producer(lease=600)) as second:
        assert numbers_of(await second.take(1)) == [0]


async def test_readers_with_groups_of_their_own_read_all(stream: RedisStream) -> None:
    stream.send(numbers(0, 5))
    async with reading(stream.producer()) as first, reading(stream.producer(group="other")) as second:
        assert numbers_of(await first.take(5)) == numbers_of(await second.take(5)) == [0, 1, 2, 3, 4]


async def test_cancellation_at_any_step_leaves_no_lease_and_loses_nothing(stream: RedisStream) -> None:
    stream.send(numbers(0, 3))
    for steps in range(0, 120, 3):
        producer = stream.producer(lease=600)
        task = asyncio.ensure_future(anext(aiter(producer.open_stream())))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(task, return_exceptions=True)
            await producer.aclose()
        assert stream.client.exists(f"{stream.state}:lease") == 0
    async with reading(stream.producer()) as stream_opened:
        assert numbers_of(await stream_opened.take(3)) == [0, 1, 2]


async def test_a_large_batch_is_acknowledged_in_one_advance(stream: RedisStream) -> None:
    stream.send(numbers(0, 9_000))
    async with reading(stream.producer()) as only:
        items = await only.take(9_000)
        await only.producer.advance(items_of(items, failed=[17]))
        assert stream.pending() == 1
        assert only.producer.get_committed(items[0][0].lane) == items[16][0].position
    async with reading(stream.producer()) as again:
        assert numbers_of(await again.take(1)) == [17]


async def test_what_the_server_refuses_is_named(stream: RedisStream) -> None:
    async def refused(text: str, hint: str, **arguments: object) -> None:
        with pytest.raises(UpstreamError, match=text) as raised:
            async with reading(stream.producer(**arguments)) as only:
                await only.take(1)
        assert hint in (raised.value.hint or "")

    stream.client.set(stream.key, "text")
    await refused("WRONGTYPE", "Name the key of a stream")
    stream.client.delete(stream.key)
    address, user = stream.server.address, f"reader{secrets.token_hex(4)}"
    stream.set_connection(f"redis://{user}:wrong@{address}")
    await refused("invalid username-password", "Correct the login")
    stream.client.acl_setuser(user, enabled=True, passwords=["+secret"], commands=["+@read", "+info"], keys=["*"])
    stream.set_connection(f"redis://{user}:secret@{address}")
    await refused("(?i)no permission", "the guide on Redis Streams")
    stream.set_connection(f"redis://{address}/99")
    await refused("DB index is out of range", "Correct the database")
    stream.client.acl_deluser(user)


async def test_the_permissions_of_the_guide_suffice(stream: RedisStream) -> None:
    user = f"reader{secrets.token_hex(4)}"
    rules = f"on >secret ~{stream.key} ~headrace:* {COMMANDS}"
    stream.client.execute_command("ACL SETUSER", user, *rules.split())
    stream.set_connection(f"redis://{user}:secret@{stream.server.address}")
    stream.send(numbers(0, 3))
    async with reading(stream.producer(start="0-1")) as only:
        items = await only.take(3)
        await only.advance(items)
        assert stream.pending() == 0
    stream.client.acl_deluser(user)


async def test_a_connection_is_probed(stream: RedisStream) -> None:
    connection = parse_connection("redis", f"redis://{stream.server.address}/2")
    assert (await asyncio.to_thread(probe_connection, connection)).startswith(("Redis 7.", "Valkey 8."))
    with pytest.raises(HeadraceError, match="AUTH"):
        await asyncio.to_thread(probe_connection, parse_connection("redis", f"redis://:x@{stream.server.address}"))


async def test_the_lease_is_renewed_while_nothing_arrives(stream: RedisStream) -> None:
    async with reading(stream.producer()) as only:
        stream.send(numbers(0, 1))
        await only.take(1)
        left = [0]

        def is_renewed() -> bool:
            left.append(stream.client.pttl(f"{stream.state}:lease"))
            assert left[-1] > 0
            return sum(later > earlier for earlier, later in pairwise(left)) > 3

        await until_in_thread(is_renewed)
