from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.sources.kinesis.lanes import Delivered
from headrace.sources.kinesis.service_errors import Throttled
from support.sources.kit import PATIENCE

if TYPE_CHECKING:
    from unit.sources.kinesis.conftest import MakeOpening, MemoryStream, Opening

LANE = "parent@0cac8f084e6f"


def acked(payload: Delivered) -> list[AdvanceItem]:
    return [AdvanceItem(payload, AdvanceOutcome(1, 0))]


def tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("headrace kinesis")}


async def end_in_a_commit(opening: Opening) -> tuple[Delivered, asyncio.Task[None]]:
    """Read the record of the parent, begin its commit, and split the parent while the commit runs."""
    opening.stream.add_shard("parent")
    opening.stream.send("parent", 1)
    await opening.start()
    ((_, payload),) = await opening.take(1)
    opening.table.writable.clear()
    advance = asyncio.create_task(opening.producer.advance(acked(payload)))
    opening.stream.add_shard("child", "parent")
    opening.stream.send("child", 2)
    async with asyncio.timeout(PATIENCE):
        while not payload.lane.is_ended:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # the task of the parent looks whether it may store the finish
    return payload, advance


@pytest.mark.parametrize("failures", [1, 3])
async def test_the_finish_of_a_shard_that_ends_during_its_last_commit_is_stored_until_the_table_takes_it(
    make_opening: MakeOpening, failures: int
) -> None:
    opening = make_opening()
    payload, advance = await end_in_a_commit(opening)
    opening.table.failures.extend([None, *[Throttled("throttled")] * failures])
    opening.table.writable.set()
    with suppress(Throttled):
        await advance
    await opening.producer.advance(acked(payload))
    ((_, later),) = await opening.take(1)
    assert later.lane.shard.id == "child"
    assert opening.table.items[payload.lane.name].is_finished


async def test_a_commit_that_fails_while_the_shard_ends_is_repeated_with_the_finish(make_opening: MakeOpening) -> None:
    opening = make_opening()
    payload, advance = await end_in_a_commit(opening)
    opening.table.failures.extend([Throttled("throttled")])
    opening.table.writable.set()
    with pytest.raises(Throttled):
        await advance
    await opening.producer.advance(acked(payload))
    ((_, later),) = await opening.take(1)
    assert later.lane.shard.id == "child"


async def test_a_close_that_is_cancelled_ends_all_tasks(make_opening: MakeOpening, stream: MemoryStream) -> None:
    opening = make_opening()
    stream.add_shard("a")
    stream.send("a", 1)
    await opening.start()
    ((_, payload),) = await opening.take(1)
    opening.table.writable.clear()
    advance = asyncio.create_task(opening.producer.advance(acked(payload)))
    await asyncio.sleep(0.05)
    closing = asyncio.create_task(opening.producer.aclose())
    await asyncio.sleep(0.05)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert tasks() == set()
    assert (opening.table.is_closed, stream.is_closed) == (True, True)
    opening.table.writable.set()
    await advance


async def test_a_service_that_cannot_be_closed_leaves_no_other_open(make_opening: MakeOpening, stream: MemoryStream) -> None:
    opening = make_opening()
    opening.table.close_error = OSError("cannot be closed")
    stream.add_shard("a")
    await opening.start()
    with pytest.raises(OSError, match="cannot be closed"):
        await opening.producer.aclose()
    assert stream.is_closed
    assert tasks() == set()
