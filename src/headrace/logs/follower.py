"""Follow a log as it grows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from watchfiles import watch

from headrace.logs.names import LogName, trigger_log
from headrace.logs.reader import jobs_with_logs, read_page

Successor = Callable[[LogName], LogName | None]
"""Returns the log that continues the given one, or None."""

_STEP_MILLISECONDS: Final = 40  # milliseconds in which changes are collected
_RECHECK_MILLISECONDS: Final = 2_000  # milliseconds after which to check in any case: the kernel does not report changes by other hosts


async def follow(root: Path, name: LogName, after: int, successor: Successor = lambda _: None) -> AsyncGenerator[bytes]:
    """Yield whole lines of a log from offset `after` on as they are written, then those of its successor. Never ends."""
    async with _changes(root / name.folder) as changed:
        while True:
            changed.clear()
            later = await asyncio.to_thread(successor, name)  # before reading: if a successor exists, this log is complete
            while (page := await asyncio.to_thread(read_page, root, name, after)) is not None and page.data:
                after = page.end
                yield page.data
            if later is None:
                await changed.wait()
            else:
                name, after = later, 0


def next_job_log(root: Path) -> Successor:
    """Return a function that finds the log of the same trigger in the next job that ran it."""

    def find(name: LogName) -> LogName | None:
        trigger_id, job_id = name.trigger_id, name.job_id
        if trigger_id is None or job_id is None:
            return None
        return next((trigger_log(trigger_id, job) for job in jobs_with_logs(root, trigger_id) if job > job_id), None)

    return find


@asynccontextmanager
async def _changes(folder: Path) -> AsyncIterator[asyncio.Event]:
    """Provide an event that is set when anything in the folder changes."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    loop, changed, stop = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def look() -> None:
        for _ in watch(
            folder,
            watch_filter=None,
            recursive=False,
            debounce=5 * _STEP_MILLISECONDS,
            step=_STEP_MILLISECONDS,
            rust_timeout=_RECHECK_MILLISECONDS,
            yield_on_timeout=True,
            stop_event=stop,
            raise_interrupt=False,
        ):
            with suppress(RuntimeError):  # the loop has closed meanwhile, so no client follows any more
                loop.call_soon_threadsafe(changed.set)

    thread = threading.Thread(target=look, name=f"follow {folder.name}", daemon=True)
    thread.start()
    try:
        yield changed
    finally:
        stop.set()
