"""Kernel notifications for folders, shared by all triggers of a loop: one watch thread for any number of waiters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from watchfiles import awatch
from watchfiles._rust_notify import WatchfilesRustInternalError

from headrace.errors import UpstreamError

SAFETY_MS: Final = 30_000  # unreported changes (a full queue, a replaced folder) are seen after this
STEP_MS: Final = 20
GATHER_MS: Final = 50
UNNAMED_PAUSE: Final = 0.1  # seconds; after the change of a name that the watch cannot decode

_watchers: WeakKeyDictionary[asyncio.AbstractEventLoop, FolderWatcher] = WeakKeyDictionary()


def cannot_name(error: BaseException) -> bool:
    """Return whether the watch ended because a changed name is not UTF-8. Any file may have changed then, and the watch can restart."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(cannot_name, error.exceptions))
    return isinstance(error, WatchfilesRustInternalError) and "decode" in str(error)


def folders() -> FolderWatcher:
    """Return the watcher of the running loop."""
    return _watchers.setdefault(asyncio.get_running_loop(), FolderWatcher())


class FolderWatcher:
    """Wakes the waiting triggers on each change in their folder, and on each change that may have been missed."""

    def __init__(self) -> None:
        self._waiting: dict[Path, set[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None
        self._again = asyncio.Event()

    @contextmanager
    def watching(self, folder: Path) -> Iterator[Callable[[], Awaitable[None]]]:
        """Yield a function that waits until `folder` may have changed; the first call returns immediately. The
        folder must exist.

        Raises:
            UpstreamError: On the wait, if folders cannot be watched.
        """
        with self._interested(folder) as changed:

            async def wait() -> None:
                task = self._started()
                await changed.wait()
                changed.clear()
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error

            yield wait

    @contextmanager
    def _interested(self, folder: Path) -> Iterator[asyncio.Event]:
        changed = asyncio.Event()
        others = self._waiting.setdefault(folder, set())
        if not others:
            self._again.set()
        others.add(changed)
        try:
            yield changed
        finally:
            others.discard(changed)
            if not others:
                del self._waiting[folder]
                self._again.set()

    def _started(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="folders")
            self._task.add_done_callback(lambda _: self._wake(list(self._waiting)))
        return self._task

    async def _watch(self) -> None:
        while self._waiting:
            self._again.clear()
            there = [folder for folder in self._waiting if folder.is_dir()]
            self._wake(set(self._waiting).difference(there))  # waiters in a removed folder look again
            if not there:
                return
            try:
                await self._follow(there)
            except FileNotFoundError:
                continue  # one was removed a moment ago
            except ExceptionGroup as errors:
                if not cannot_name(errors):
                    raise
                await asyncio.sleep(UNNAMED_PAUSE)
                self._wake(there)
            except OSError as error:
                raise UpstreamError(
                    f"Folders cannot be watched: {error}.", hint="Is the machine's limit of file watches (inotify) reached? Or use poll=."
                ) from error

    async def _follow(self, there: list[Path]) -> None:
        """Wake the waiters of changed folders, until the set of folders changes or one of them was removed."""
        changes = awatch(
            *there,
            watch_filter=None,
            stop_event=self._again,
            recursive=False,
            step=STEP_MS,
            debounce=GATHER_MS,
            rust_timeout=SAFETY_MS,
            yield_on_timeout=True,
        )
        following = asyncio.ensure_future(anext(changes, None))
        await asyncio.sleep(0)  # the watch is active from the first step on: look for earlier changes now
        self._wake(there)
        try:
            while (batch := await following) is not None:
                self._wake({Path(path).parent for _, path in batch} if batch else there)
                if not all(folder.is_dir() for folder in there):
                    return
                following = asyncio.ensure_future(anext(changes, None))
        finally:
            following.cancel()
            await asyncio.wait({following})
            await changes.aclose()

    def _wake(self, changed: Iterable[Path]) -> None:
        for folder in changed:
            for event in self._waiting.get(folder, ()):
                event.set()
