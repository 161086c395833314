"""Kernel notifications for one folder: the names that changed, and the loss of notifications."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from fnmatch import translate
from pathlib import Path
from typing import Final

import structlog
from watchfiles import Change, awatch

from headrace.errors import UpstreamError
from headrace.triggers.builtin.folder_watcher import cannot_name

GATHER_MS: Final = 100
STEP_MS: Final = 20
TIMEOUT_MS: Final = 30_000
MAX_NAMES: Final = 50_000

log = structlog.get_logger(__name__)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that decides by its name whether to read a file."""
    match = re.compile(translate(pattern)).match

    def is_selected(name: str) -> bool:
        return match(name) is not None and not name.startswith(".") and not name.endswith(".part")

    return is_selected


class Watch:
    """Collects the changed names in the folder `path` for which `is_of_interest` is true.

    `needs_scan`: the changed names are unknown, so the whole folder must be scanned.
    """

    def __init__(self, path: Path, is_of_interest: Callable[[str], bool]) -> None:
        self._path = path
        self._is_of_interest = is_of_interest
        self._names: dict[str, None] = {}
        self._changed = asyncio.Event()
        self.needs_scan = True

    async def run(self) -> None:
        """Collect without end. Raises `UpstreamError` where the folder cannot be watched."""
        pause = 0.0
        while True:
            try:
                async for changes in self._watching():
                    pause = 0.0
                    self._note(changes)
            except OSError as error:
                raise UpstreamError(
                    f"The folder {self._path} cannot be watched: {error}.",
                    hint="Is the machine's limit of file watches (inotify) reached?",
                ) from error
            except ExceptionGroup as errors:
                if not cannot_name(errors):
                    raise
                # The scan finds that name, and changes until the watch is active again.
                log.debug("change of a name that is not UTF-8", folder=str(self._path))
            await asyncio.sleep(pause)
            pause = min(pause + 0.1, 2.0)
            self.scan()

    def scan(self) -> None:
        """Request a scan."""
        self.needs_scan = True
        self._changed.set()

    def wake(self) -> None:
        """Wake the waiting task."""
        self._changed.set()

    def take(self, limit: int) -> list[str]:
        """Take up to `limit` changed names. Further ones stay."""
        names = list(self._names)[:limit] if len(self._names) > limit else list(self._names)
        for name in names:
            del self._names[name]
        if self._names:
            self._changed.set()
        return names

    async def wait(self, until: float | None) -> None:
        """Wait until there is work, or until the loop's time is `until`."""
        try:
            async with asyncio.timeout_at(until):
                await self._changed.wait()
        except TimeoutError:
            return

    def begin(self) -> None:
        """Record that all changes known so far will be handled."""
        self._changed.clear()

    def _watching(self) -> AsyncIterator[set[tuple[Change, str]]]:
        return awatch(
            self._path,
            watch_filter=self._filter,
            debounce=GATHER_MS,
            step=STEP_MS,
            rust_timeout=TIMEOUT_MS,
            yield_on_timeout=True,
            recursive=False,
        )

    def _filter(self, change: Change, path: str) -> bool:
        del change
        return self._is_of_interest(path.rpartition("/")[2]) or Path(path) == self._path

    def _note(self, changes: set[tuple[Change, str]]) -> None:
        for _, path in changes:
            name = path.rpartition("/")[2]
            if self._is_of_interest(name):
                self._names[name] = None
            else:
                self.needs_scan = True
        if len(self._names) > MAX_NAMES:
            self._names.clear()
            self.needs_scan = True
        if changes:
            self._changed.set()
