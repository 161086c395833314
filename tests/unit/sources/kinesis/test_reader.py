from __future__ import annotations

import asyncio
import hashlib
import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.sources import inbox
from headrace.sources.kinesis import message
from headrace.sources.kinesis import reader as reader_module
from headrace.sources.kinesis.aggregation import MAGIC
from headrace.sources.kinesis.client import Record, Shard
from headrace.sources.kinesis.lanes import LOST_POSITIONS, Checkpoint, Lane
from headrace.sources.kinesis.service_errors import Throttled
from support.sources.kit import PATIENCE

if TYPE_CHECKING:
    from unit.sources.kinesis.conftest import MakeOpening, MemoryStream, Opening

ACKED, FAILED = AdvanceOutcome(1, 0), AdvanceOutcome(0, 1)
HOUR_MS = 3_600_000
HALF = 2**127


def aggregated(*keys: str) -> bytes:
    """Return an aggregated record with one record for each key."""
    body = b"".join(b"\x0a" + bytes([len(key)]) + key.encode() for key in keys)
    body += b"".join(bytes([0x1A, 5, 0x08, index, 0x1A, 1]) + b"1" for index in range(len(keys)))
    return MAGIC + body + hashlib.md5(body).digest()


def foreign_key() -> str:
    """Return a key whose hash key is in the upper half."""
    return next(key for key in map(str, range(100)) if int.from_bytes(hashlib.md5(key.encode()).digest(), "big") >= HALF)


def losses(opening: Opening) -> dict[str, str]:
    return {name.partition("@")[0]: text for name, text in opening.producer.get_errors().items() if name.endswith("(lost records)")}


async def test_the_loss_of_children_that_wait_longer_than_the_retention_is_reported(
    make_opening: MakeOpening, stream: MemoryStream
) -> None:
    opening = make_opening()
    stream.add_shard("parent")
    stream.send("parent", 1)
    stream.add_shard("child", "parent")
    await opening.start()
    ((_, payload),) = await opening.take(1)
    await opening.producer.advance([AdvanceItem(payload, FAILED)])
    stream.send("child", 2)
    await opening.producer.aclose()

    stream.late_ms = 20 * HOUR_MS
    stream.send("child", 3)
    opening = make_opening()
    await opening.start()
    ((_, payload),) = await opening.take(1)
    stream.late_ms = 30 * HOUR_MS
    await opening.producer.advance([AdvanceItem(payload, ACKED)])
    ((_, later),) = await opening.take(1)
    assert (later.sequence, later.position) == ("3", LOST_POSITIONS + 1)
    assert "Records from the start on may be lost" in losses(opening)["child"]


async def test_the_loss_of_shards_that_were_made_while_no_reader_ran_is_reported(make_opening: MakeOpening, stream: MemoryStream) -> None:
    """The oldest records of the child are deleted while its parent is read."""
    opening = make_opening()
    stream.add_shard("parent")
    stream.send("parent", 1)
    await opening.start()
    ((_, payload),) = await opening.take(1)
    await opening.producer.advance([AdvanceItem(payload, ACKED)])
    await opening.producer.aclose()

    stream.late_ms = HOUR_MS
    stream.send("parent", 2)
    stream.add_shard("child", "parent")
    stream.send("child", 3)
    stream.add_shard("grandchild", "child")
    stream.late_ms = 20 * HOUR_MS
    opening = make_opening()
    await opening.start()
    ((_, payload),) = await opening.take(1)
    assert losses(opening) == {}
    stream.send("grandchild", 4)
    stream.late_ms = 30 * HOUR_MS
    await opening.producer.advance([AdvanceItem(payload, ACKED)])
    ((_, later),) = await opening.take(1)
    assert later.sequence == "4"
    assert losses(opening).keys() == {"child", "grandchild"}


async def test_children_that_begin_in_time_report_no_loss(make_opening: MakeOpening, stream: MemoryStream) -> None:
    opening = make_opening()
    stream.add_shard("parent")
    stream.send("parent", 1)
    stream.add_shard("child", "parent")
    stream.send("child", 2)
    await opening.start()
    ((_, payload),) = await opening.take(1)
    stream.late_ms = 20 * HOUR_MS
    await opening.producer.advance([AdvanceItem(payload, ACKED)])
    ((_, later),) = await opening.take(1)
    assert (later.sequence, later.position, losses(opening)) == ("2", 1, {})


async def test_other_tasks_run_while_an_answer_is_decoded(make_opening: MakeOpening, stream: MemoryStream) -> None:
    opening = make_opening()
    stream.add_shard("a")
    stream.send("a", *range(1, 10_001))
    opening.reader._limits[opening.reader._reading.reader.lane("a")] = 10_000
    await opening.start()
    sizes = [0]
    while sizes[-1] < 10_000:
        sizes.append(len(opening.reader._inbox))
        await asyncio.sleep(0)
    assert max(later - before for before, later in pairwise(sizes)) <= 500


async def test_large_records_are_taken_apart_in_a_thread(
    make_opening: MakeOpening, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of 1 MB may have 170,000 others, which takes a second."""
    is_main: list[bool] = []

    def content_of(record: Record, shard: Shard) -> message.Content:
        is_main.append(threading.current_thread() is threading.main_thread())
        return original(record, shard)

    original = message.content_of
    for module in (message, reader_module):
        monkeypatch.setattr(module, "content_of", content_of)
    opening = make_opening()
    stream.add_shard("a")
    size = reader_module.MAX_BYTES_PER_TURN - len(MAGIC)
    stream.send("a", 1, data=MAGIC + bytes(size))
    stream.send("a", 2, data=MAGIC + bytes(size + 1))
    stream.send("a", 3, data=bytes(2 * size))
    await opening.start()
    assert [payload.position for _, payload in await opening.take(3)] == [1, 2, 3]
    assert is_main == [True, False, True]


@pytest.mark.parametrize("is_aggregated", [False, True])
async def test_records_of_an_answer_are_decoded_while_there_is_room(
    make_opening: MakeOpening, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch, is_aggregated: bool
) -> None:
    monkeypatch.setattr(inbox, "MAX_MESSAGES", 20)
    opening = make_opening()
    stream.add_shard("a")
    if is_aggregated:
        stream.send("a", 1, data=aggregated(*["k"] * 100))
    else:
        stream.send("a", *range(1, 101))
    await opening.start()
    (first,) = await opening.take(1)
    for _ in range(10):
        await asyncio.sleep(0.01)
        assert len(opening.reader._inbox) <= 20
        assert opening.reader.unread is None
    items = [first, *await opening.take(99)]
    assert [payload.position for _, payload in items] == list(range(1, 101))


async def test_records_that_belong_to_another_shard_are_counted_and_reported(make_opening: MakeOpening, stream: MemoryStream) -> None:
    opening = make_opening()
    stream.add_shard("a", last_hash=HALF - 1)
    own = next(key for key in map(str, range(100)) if int.from_bytes(hashlib.md5(key.encode()).digest(), "big") < HALF)
    stream.send("a", 1, data=aggregated(own, foreign_key(), foreign_key()))
    stream.send("a", 2, data=aggregated(foreign_key()))
    stream.send("a", 3)
    await opening.start()
    items = await opening.take(2)
    assert [payload.sequence for _, payload in items] == ["1", "3"]
    lane = items[0][1].lane
    lane.iterator = None  # they are read again
    async with asyncio.timeout(PATIENCE):
        while lane.iterator is None:
            await asyncio.sleep(0.01)
    (text,) = [text for name, text in opening.producer.get_errors().items() if name == f"{lane.name} (left out)"]
    assert text.startswith("3 records ")
    assert lane.left_out == 3


def test_the_size_of_a_request_depends_on_the_shards_that_are_read(make_opening: MakeOpening, stream: MemoryStream) -> None:
    stream.add_shard("a")
    opening = make_opening()
    reader = opening.reader
    reader._begun = {str(number) for number in range(300, 500)}
    reader._finished = {str(number) for number in range(300)}  # also of earlier openings
    lane = Lane("a", stream.listed["a"], Checkpoint())
    reader._limits["a"] = 10_000
    reader._size_next(lane, 100, 100 * 1_000)
    assert reader._limits["a"] == reader_module.MAX_BATCH_BYTES // 200 // 1_000


async def test_a_shard_that_cannot_be_taken_over_ends_the_other_requests(make_opening: MakeOpening, stream: MemoryStream) -> None:
    opening = make_opening()
    for id in "abc":
        stream.add_shard(id)
    table = opening.table
    ended: list[str] = []

    async def take_over(lane: str, now_ms: int) -> None:
        if lane.startswith("b"):
            raise Throttled("throttled")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(lane[0])

    table.take_over = take_over  # type: ignore[method-assign,assignment]
    with pytest.raises(Throttled):
        await opening.start()
    assert sorted(ended) == ["a", "c"]


async def test_children_wait_for_a_parent_that_is_not_answered_and_not_listed_any_more(
    make_opening: MakeOpening, stream: MemoryStream
) -> None:
    opening = make_opening()
    stream.add_shard("parent")
    stream.send("parent", 1)
    await opening.start()
    ((_, payload),) = await opening.take(1)
    stream.add_shard("child", "parent")
    stream.send("child", 2)
    del stream.listed["parent"]
    await asyncio.sleep(0.2)  # several lists of shards
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(opening.reader.next(), 0.1)
    await opening.producer.advance([AdvanceItem(payload, ACKED)])
    ((_, later),) = await opening.take(1)
    assert later.sequence == "2"
