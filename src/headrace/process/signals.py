"""Wait for Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager


@asynccontextmanager
async def stop_signals() -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGINT and SIGTERM set instead of ending the process."""
    stop = asyncio.Event()
    with on_signal(stop.set):
        yield stop


@contextmanager
def on_signal(callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` at each SIGINT and SIGTERM instead of ending the process."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, callback)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def wait_for_shutdown(failed: Callable[[], Awaitable[None]]) -> None:
    """Return at SIGINT or SIGTERM. If `failed` raises first, raise its exception."""
    async with stop_signals() as stop:
        await wait_first(stop, failed)


async def wait_first(stop: asyncio.Event, failed: Callable[[], Awaitable[None]]) -> None:
    """Return when `stop` is set. If `failed` raises first, raise its exception."""
    stop_task = asyncio.create_task(stop.wait())
    failure_task = asyncio.create_task(_call(failed))
    try:
        await asyncio.wait({stop_task, failure_task}, return_when=asyncio.FIRST_COMPLETED)
        if failure_task.done():
            await failure_task
    finally:
        stop_task.cancel()
        failure_task.cancel()


async def _call(failed: Callable[[], Awaitable[None]]) -> None:
    await failed()
