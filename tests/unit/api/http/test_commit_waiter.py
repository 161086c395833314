"""A commit waiter hands the results of other threads to all coroutines that wait for them, also results that arrive meanwhile."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from headrace.api.http.commit_waiter import CommitWaiter


async def test_all_results_of_concurrent_threads_arrive() -> None:
    durable = CommitWaiter()
    futures: list[Future[int]] = [Future() for _ in range(2_000)]
    shuffled = random.Random(7).sample(range(len(futures)), len(futures))

    def answer(part: int) -> None:
        for number in shuffled[part::4]:
            futures[number].set_result(number)

    async with asyncio.timeout(120):
        with ThreadPoolExecutor(4) as threads:
            asking = [asyncio.create_task(durable(future)) for future in futures]
            answering = [asyncio.get_running_loop().run_in_executor(threads, answer, part) for part in range(4)]
            assert await asyncio.gather(*asking) == list(range(len(futures)))
            await asyncio.gather(*answering)


async def test_an_error_is_raised_only_for_its_own_waiter() -> None:
    durable = CommitWaiter()
    bad: Future[int] = Future()
    good: Future[int] = Future()
    refused, answered = asyncio.create_task(durable(bad)), asyncio.create_task(durable(good))
    await asyncio.sleep(0)
    bad.set_exception(ValueError("no"))
    good.set_result(1)
    with pytest.raises(ValueError, match="no"):
        await refused
    assert await answered == 1


async def test_a_cancelled_waiter_does_not_delay_other_waiters() -> None:
    durable = CommitWaiter()
    gone: Future[int] = Future()
    stays: Future[int] = Future()
    leaving, staying = asyncio.create_task(durable(gone)), asyncio.create_task(durable(stays))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait({leaving})
    gone.set_result(1)
    stays.set_result(2)
    assert await staying == 2
    assert await durable(gone) == 1, "what is answered already is answered at once"
