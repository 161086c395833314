"""The two threads of a folder's reader: one looks and reads, one writes the journal and moves files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from headrace.sources.directory.files import Files
from headrace.sources.directory.folder import Folder
from headrace.sources.directory.lines import LineReader

R = TypeVar("R")


class Threads:
    """Run calls in the two threads, each in the order of submission, even if no task waits for the result any more.

    `folder` is set from the end of `open` to `close`.
    """

    def __init__(self, path: Path, keep_done: int | None) -> None:
        self._path = path
        self._keep_done = keep_done
        self._reading: ThreadPoolExecutor | None = None
        self._keeping: ThreadPoolExecutor | None = None
        self.folder: Folder | None = None
        self.files: Files | None = None

    async def open(self) -> Folder:
        """Open the folder. Raises `UpstreamError`."""
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="headrace folder")
        self._keeping = ThreadPoolExecutor(1, thread_name_prefix="headrace journal")
        return await self.keep(self._open)

    async def read(self, call: Callable[[], R]) -> R:
        """Run a call in the thread that reads."""
        return await asyncio.get_running_loop().run_in_executor(self._reading, call)

    async def keep(self, call: Callable[[], R]) -> R:
        """Run a call in the thread that writes the journal."""
        return await asyncio.get_running_loop().run_in_executor(self._keeping, call)

    def leave(self, readers: Sequence[LineReader]) -> None:
        """Close these files after the running reads."""
        if readers and self._reading is not None and self.files is not None:
            self._reading.submit(self.files.leave, readers)

    async def close(self) -> None:
        """Close the files and the folder after the running calls, even if this task is cancelled."""
        reading, self._reading = self._reading, None
        keeping, self._keeping = self._keeping, None
        if reading is None or keeping is None:
            return
        ends = [keeping.submit(self._close)]
        if self.files is not None:
            ends.append(reading.submit(self.files.close))
        reading.shutdown(wait=False)
        keeping.shutdown(wait=False)
        await asyncio.gather(*map(asyncio.wrap_future, ends))

    def _open(self) -> Folder:
        self.folder = Folder(self._path, self._keep_done)
        return self.folder

    def _close(self) -> None:
        folder, self.folder = self.folder, None
        if folder is not None:
            folder.close()
