"""Items that wait during a write are written together by the next write."""

from __future__ import annotations

import asyncio

import pytest

from headrace.sources.group_commit import GroupCommit


class Disk:
    """Writes numbers when let go; a negative one is an error."""

    def __init__(self) -> None:
        self.writes: list[list[int]] = []
        self.go = asyncio.Event()

    async def write(self, group: list[int]) -> list[str]:
        self.writes.append(group)
        await self.go.wait()
        if min(group) < 0:
            raise OSError("disk full")
        return [str(one) for one in group]


async def test_each_caller_receives_its_own_result() -> None:
    disk = Disk()
    group = GroupCommit(disk.write)
    waiting = [asyncio.ensure_future(group.submit(1))]
    await asyncio.sleep(0)
    waiting += [asyncio.ensure_future(group.submit(number)) for number in range(2, 10)]
    await asyncio.sleep(0)
    disk.go.set()
    assert await asyncio.gather(*waiting) == [str(number) for number in range(1, 10)]
    assert disk.writes == [[1], [2, 3, 4, 5, 6, 7, 8, 9]]
    assert await group.submit(10) == "10"


async def test_an_error_is_raised_for_all_callers_of_its_group_only() -> None:
    disk = Disk()
    disk.go.set()
    group = GroupCommit(disk.write)
    answers = await asyncio.gather(group.submit(1), group.submit(-1), return_exceptions=True)
    assert [type(answer) for answer in answers] == [OSError, OSError]
    assert await group.submit(1) == "1"


async def test_a_cancelled_caller_does_not_affect_other_callers() -> None:
    disk = Disk()
    group = GroupCommit(disk.write)
    leaver, stayer = asyncio.ensure_future(group.submit(1)), asyncio.ensure_future(group.submit(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaver.cancel()
    disk.go.set()
    assert await stayer == "2"
    with pytest.raises(asyncio.CancelledError):
        await leaver


async def test_closing_waits_for_the_running_write() -> None:
    disk = Disk()
    group = GroupCommit(disk.write)
    await group.aclose()
    leaver = asyncio.ensure_future(group.submit(1))
    await asyncio.sleep(0)
    leaver.cancel()
    closing = asyncio.ensure_future(group.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    disk.go.set()
    await closing
    assert disk.writes == [[1]]


async def test_a_cancelled_write_ends_all_waiting_callers() -> None:
    disk = Disk()
    group = GroupCommit(disk.write)
    waiting = asyncio.ensure_future(group.submit(1))
    await asyncio.sleep(0)
    later = asyncio.ensure_future(group.submit(2))
    await asyncio.sleep(0)
    assert group._running is not None
    group._running.cancel()
    answers = await asyncio.gather(waiting, later, return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncio.CancelledError, asyncio.CancelledError]
