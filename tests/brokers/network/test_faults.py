"""Networks that reset, delay, swallow and refuse, between each broker and a shared stream that reads and advances.

What holds for all of them: no message is lost, none is delivered after its advance, no position goes back inside one stream, and a
connection that is silent is found.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import pytest

from headrace import Kafka
from headrace.errors import HeadraceError
from headrace.testing.contract.reading import reading
from support.processes.proxy import Direction, Proxy
from support.sources.proxied import Advance, Proxied, begin_in_silence
from support.sources.reading import numbers, until
from support.sources.resumed_reading import ResumedReading, resumed_reading

pytestmark = [pytest.mark.brokers, pytest.mark.slow]


async def send(proxied: Proxied, first: int, last: int) -> None:
    """Send the messages with these numbers."""
    await asyncio.to_thread(proxied.send, numbers(first, last))


async def check_the_rest(proxied: Proxied, before: ResumedReading, total: int) -> None:
    """Check that the next reader gets what is sent now, and nothing that was advanced.

    It opens the stream again after an error: with short timeouts, a request may fail because it waits for a processor.
    """
    await send(proxied, total, total + 1)
    async with resumed_reading(proxied.upstream) as run:
        await until(lambda: total in run.stored)
    assert before.advanced.isdisjoint(run.delivered)


async def finish(proxied: Proxied, run: ResumedReading, total: int) -> None:
    """Wait until all messages are stored, and check what has happened."""
    await run.stored_up_to(total)
    run.check(total, ordered=proxied.ordered)


async def test_connections_that_are_reset_while_they_are_read(proxied: Proxied) -> None:
    async with resumed_reading(proxied.upstream) as run:
        for number in range(5):
            await send(proxied, 40 * number, 40 * number + 40)
            await run.stored_up_to(40 * number + 20)
            proxied.proxy.reset()
        await finish(proxied, run, 200)
    await check_the_rest(proxied, run, 200)


@pytest.mark.parametrize("lost", [None, "to_server", "to_client"])
async def test_connections_that_are_reset_during_an_advance(proxied: Proxied, lost: Direction | None) -> None:
    """The request of the advance is lost, or its answer, or nothing but the connection."""

    async def disturb(advance: Advance) -> None:
        running = await begin_in_silence(proxied.proxy, lost, advance)
        proxied.proxy.reset()
        proxied.proxy.speak()
        await running

    async with resumed_reading(proxied.upstream) as run:
        for number in range(3):
            await send(proxied, 20 * number, 20 * number + 20)
            run.disturb_advance = disturb
            await run.stored_up_to(20 * number + 20)
        await finish(proxied, run, 60)
    await check_the_rest(proxied, run, 60)


@pytest.mark.parametrize("direction", ["both", "to_server", "to_client"])
async def test_a_network_that_is_silent_for_longer_than_the_timeouts(proxied: Proxied, direction: Direction) -> None:
    """What was sent meanwhile arrives late: also the requests of connections that the client has given up."""
    async with resumed_reading(proxied.upstream) as run:
        await send(proxied, 0, 20)
        await run.advanced_up_to(20)
        run.is_storing.clear()
        await send(proxied, 20, 40)
        await until(lambda: len(set(run.delivered)) == 40)
        proxied.proxy.silence(direction)
        run.is_storing.set()
        await until(lambda: run.found() is not None)
        await send(proxied, 40, 60)
        proxied.proxy.speak()
        await finish(proxied, run, 60)
    await check_the_rest(proxied, run, 60)


async def test_connections_that_a_router_forgets(proxied: Proxied) -> None:
    """Idle connections become silent for good. New ones pass."""
    async with resumed_reading(proxied.upstream) as run:
        for number in range(2):
            await send(proxied, 20 * number, 20 * number + 20)
            await run.stored_up_to(20 * number + 20)
            proxied.proxy.freeze()
        await send(proxied, 40, 60)
        await finish(proxied, run, 60)
    await check_the_rest(proxied, run, 60)


async def test_a_slow_network(proxied_by_default: Proxied) -> None:
    proxied = proxied_by_default  # a short timeout would also end requests that wait for a processor
    async with resumed_reading(proxied.upstream) as run:
        await send(proxied, 0, 20)
        await run.advanced_up_to(20)
        proxied.proxy.delay(0.03)
        await send(proxied, 20, 220)
        await finish(proxied, run, 220)
        assert run.ends == []
        proxied.proxy.delay(0)
    await check_the_rest(proxied, run, 220)


async def test_connections_that_are_refused_for_a_while(proxied: Proxied) -> None:
    async with resumed_reading(proxied.upstream) as run:
        await send(proxied, 0, 20)
        await run.advanced_up_to(20)
        proxied.proxy.refuse()
        await send(proxied, 20, 40)
        await until(lambda: run.found() is not None)
        proxied.proxy.calm()
        await finish(proxied, run, 40)
    await check_the_rest(proxied, run, 40)


async def test_a_stream_that_is_stopped_in_a_silent_network_leaves_nothing_behind_once_it_speaks(proxied: Proxied) -> None:
    async with resumed_reading(proxied.upstream) as first:  # imports the client library, and starts what it keeps for the process
        await send(proxied, 0, 20)
        await first.advanced_up_to(20)
    await settled()
    tasks, threads, descriptors = asyncio.all_tasks(), threads_of_upstreams(), count_descriptors()
    async with resumed_reading(proxied.upstream) as run:
        await send(proxied, 20, 40)
        await run.advanced_up_to(20)
        run.is_storing.clear()
        await send(proxied, 40, 60)
        await until(lambda: len(run.delivered) == 40)
        proxied.proxy.silence()
        run.is_storing.set()
        await until(lambda: len(run.stored) == 40)  # the advance has begun, or does as the stream stops
    assert run.left_behind == 0
    assert asyncio.all_tasks() == tasks
    if isinstance(proxied.upstream, Kafka):  # its consumer is left behind until the network speaks: the close waits for the coordinator
        proxied.proxy.calm()
    await until(lambda: threads_of_upstreams() <= threads)
    await until(lambda: count_left(proxied.proxy) <= descriptors)
    proxied.proxy.calm()
    async with resumed_reading(proxied.upstream) as last:
        await until(lambda: set(last.stored) >= set(range(40, 60)) - run.advanced)


async def settled() -> None:
    """Wait until the number of threads stays."""
    before = -1
    while before != threading.active_count():
        before = threading.active_count()
        await asyncio.sleep(0.2)


def threads_of_upstreams() -> set[threading.Thread]:
    """Return the threads of this process without those of the default executor, which starts one when calls overlap."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}


def count_left(proxy: Proxy) -> int:
    """Return the number of open descriptors without connections of the proxy, which may accept one of the stopped stream late."""
    proxy.reset()
    gc.collect()
    return count_descriptors()


def count_descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_silent_network_is_found_in_the_time_that_the_guide_names(proxied_by_default: Proxied) -> None:
    proxied = proxied_by_default
    async with resumed_reading(proxied.upstream) as run:
        await send(proxied, 0, 20)
        await run.advanced_up_to(20)
        proxied.proxy.freeze()
        proxied.proxy.silence()
        await send(proxied, 20, 40)
        await until(lambda: run.found() is not None)
        proxied.proxy.speak()
        await finish(proxied, run, 40)
    await check_the_rest(proxied, run, 40)


async def test_an_opening_in_a_silent_network_ends(proxied: Proxied) -> None:
    proxied.proxy.silence()
    async with asyncio.timeout(60):
        with pytest.raises(HeadraceError):
            async with reading(proxied.upstream.producer()) as stream:
                await stream.take(1)
    proxied.proxy.speak()
