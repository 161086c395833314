"""Raw events of entries: fields, decoding, positions, start, and hostile values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import MalformedEvent, UpstreamError
from headrace.sources.redis.entry_ids import position_of
from headrace.testing.contract.reading import reading
from support.sources.reading import numbers, numbers_of, until_in_thread
from support.sources.redis import RedisStream

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("redis")]


async def take(stream: RedisStream, count: int, **arguments: Any) -> list[Any]:
    async with reading(stream.producer(**arguments)) as opened:
        return [raw for raw, _ in await opened.take(count)]


async def test_the_payload_is_the_value_and_other_fields_are_headers(stream: RedisStream) -> None:
    id = stream.client.xadd(stream.key, {"data": '{"n": 1}', "customer": "Ada", "source": "shop"})
    (raw,) = await take(stream, 1, key="customer")
    assert (raw.data, raw.key, raw.headers, raw.delivery) == (b'{"n": 1}', "Ada", {"customer": "Ada", "source": "shop"}, 1)
    assert raw.position == position_of(id)
    assert raw.timestamp_ms == int(id.partition("-")[0])
    assert raw.lane.partition("@")[0] == stream.key
    (again,) = await take(stream, 1, key="customer")
    assert (again.delivery, again.position, again.lane) == (2, raw.position, raw.lane)


async def test_all_fields_are_one_object_of_texts_without_a_payload(stream: RedisStream) -> None:
    stream.client.execute_command("XADD", stream.key, "*", "n", "1", "ü", "😀\x00", "n", "2")
    stream.client.xadd(stream.key, {"bytes": b"\xff"})
    valid, invalid = await take(stream, 2, payload=None)
    assert valid.value == {"n": "2", "ü": "😀\x00"}
    with pytest.raises(MalformedEvent, match="The field 'bytes' is not UTF-8"):
        _ = invalid.value


async def test_values_are_decoded_and_others_become_dead_letters(stream: RedisStream) -> None:
    event = {"id": "7", "source": "/shop", "type": "paid", "specversion": "1.0"}
    stream.client.xadd(stream.key, {"data": json.dumps(event)})
    stream.client.xadd(stream.key, {"data": "[1"})
    stream.client.xadd(stream.key, {"other": "x"})
    valid, wrong, absent = await take(stream, 3, decode="cloudevents")
    assert (valid.value, valid.id) == (event, "%2Fshop/7" if "%" in valid.id else "/shop/7")
    for raw, reason in ((wrong, "Not a JSON object"), (absent, "no field 'data'")):
        with pytest.raises(MalformedEvent, match=reason):
            _ = raw.value
    assert absent.headers == {"other": "x"}


@pytest.mark.parametrize("value", [b"", b"\x00\xff", b"not json", b'{"a":' * 5_000])
async def test_hostile_values_arrive_byte_for_byte(stream: RedisStream, value: bytes) -> None:
    stream.send([value, *numbers(1, 2)])
    raw, after = await take(stream, 2)
    assert raw.data == value
    with pytest.raises(MalformedEvent):
        _ = raw.value
    assert after.value == {"n": 1}


async def test_values_of_one_megabyte(stream: RedisStream) -> None:
    values = [b'{"long":"' + bytes([97 + number]) * 1_000_000 + b'"}' for number in range(20)]
    stream.send(values)
    assert [raw.data for raw in await take(stream, 20)] == values


async def test_ids_of_programs_keep_their_order(stream: RedisStream) -> None:
    ids = ["0-1", "1-1", "1-2", "7-1048575", "8796093022207-0"]
    for number, id in enumerate(ids):
        stream.client.xadd(stream.key, {"data": number}, id=id)
    raws = await take(stream, 5)
    assert [raw.value for raw in raws] == [0, 1, 2, 3, 4]
    assert [raw.position for raw in raws] == sorted({raw.position for raw in raws})


@pytest.mark.parametrize("id", ["8796093022208-0", "1-1048576", "18446744073709551615-1"])
async def test_an_id_that_fits_no_position_is_refused(stream: RedisStream, id: str) -> None:
    stream.client.xadd(stream.key, {"data": 0}, id="0-1")
    stream.client.xadd(stream.key, {"data": 1}, id=id)
    async with reading(stream.producer()) as opened:
        assert (await opened.take(1))[0][0].value == 0  # what comes before it is delivered
        with pytest.raises(UpstreamError, match=f"Entry {id} cannot be read") as raised:
            await opened.take(1)
    assert "with ids of the server" in (raised.value.hint or "")


async def test_reading_begins_at_the_start_and_keeps_it(stream: RedisStream) -> None:
    ids = stream.send(numbers(0, 10))
    async with reading(stream.producer(group="after", start=ids[3])) as opened:
        assert numbers_of(await opened.take(6)) == [4, 5, 6, 7, 8, 9]
    producer = stream.producer(group="latest", start="latest")
    async with reading(producer):
        await until_in_thread(lambda: "latest" in [group["name"] for group in stream.client.xinfo_groups(stream.key)])
    stream.send(numbers(10, 11))
    async with reading(stream.producer(group="latest", start="latest")) as opened:
        assert numbers_of(await opened.take(1)) == [10]
        assert opened.producer.get_errors() == {}


async def test_a_group_that_a_program_created_keeps_its_place(stream: RedisStream) -> None:
    ids = stream.send(numbers(0, 5))
    stream.client.xgroup_create(stream.key, stream.group, id=ids[1])
    async with reading(stream.producer()) as opened:
        assert numbers_of(await opened.take(3)) == [2, 3, 4]
        assert opened.producer.get_errors() == {}
