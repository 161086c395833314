"""Waiting for Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager


@asynccontextmanager
async def stop_signals() -> AsyncIterator[asyncio.Event]:
    """Give an event that SIGINT and SIGTERM set, instead of ending the process."""
    told = asyncio.Event()
    with on_signal(told.set):
        yield told


@contextmanager
def on_signal(told: Callable[[], None]) -> Iterator[None]:
    """Call `told` at each SIGINT and SIGTERM, instead of ending the process."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, told)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def wait_for_shutdown(failed: Callable[[], Awaitable[None]]) -> None:
    """Return at SIGINT or SIGTERM; raise what `failed` raises, if that comes first."""
    async with stop_signals() as told:
        await wait_first(told, failed)


async def wait_first(told: asyncio.Event, failed: Callable[[], Awaitable[None]]) -> None:
    """Return when `told` is set; raise what `failed` raises, if that comes first."""
    telling = asyncio.create_task(told.wait())
    failing = asyncio.create_task(_call(failed))
    try:
        await asyncio.wait({telling, failing}, return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            await failing
    finally:
        telling.cancel()
        failing.cancel()


async def _call(failed: Callable[[], Awaitable[None]]) -> None:
    await failed()
