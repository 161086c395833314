"""A cancellation that a client library has dropped ends the task at the next check."""

from __future__ import annotations

import asyncio

import pytest

from headrace.sources.cancellation import check_cancelled


async def test_a_task_whose_cancellation_was_dropped_ends_at_the_check() -> None:
    request: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    dropped = []

    async def read() -> None:
        try:
            await request
        except asyncio.CancelledError:
            dropped.append(True)
        check_cancelled()
        await asyncio.Event().wait()

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert dropped == [True]


async def test_a_task_that_was_not_cancelled_continues() -> None:
    check_cancelled()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(1)
    check_cancelled()
