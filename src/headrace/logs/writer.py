"""Writing logs: thousands of them with a bounded number of open files, each bounded in size."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_UN, flock
from functools import partial
from pathlib import Path
from threading import Lock

from headrace.logs.names import LogName
from headrace.logs.segments import segment_path, segments


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many files may be open at once, how large a log's file grows (bytes), how many of them a log keeps, and a folder of logs."""

    open_files: int = 64
    file_bytes: int = 1024 * 1024
    files: int = 5
    folder_files: int = 200


@dataclass(slots=True)
class _Open:
    descriptor: int
    start: int


class LogFiles:
    """The logs below one folder, for any number of threads and processes: a runner and its trigger processes write to the same.

    A line is in the kernel's hands when `append` returns: the process may be killed then, and it is there. What cannot be written is
    told to `trouble` once, until writing succeeds again: a full disk must not stop a trigger.
    """

    def __init__(self, root: Path, trouble: Callable[[OSError], None], bounds: Bounds | None = None) -> None:
        self._root = root
        self._trouble = trouble
        self._bounds = bounds or Bounds()
        self._open: OrderedDict[LogName, _Open] = OrderedDict()
        self._lock = Lock()
        self._troubled = False

    def append(self, name: LogName, line: bytes) -> None:
        """Add one line, which ends with a newline and has no other."""
        try:
            with self._lock:
                self._append(name, line)
        except OSError as error:
            if not self._troubled:
                self._troubled = True
                self._trouble(error)
        else:
            self._troubled = False

    def close(self) -> None:
        """Close every file."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1].descriptor)

    def _append(self, name: LogName, line: bytes) -> None:
        file = self._open.get(name)
        if file is None:
            file = self._keep(name, self._reopen(name))
        else:
            self._open.move_to_end(name)
        while (after := self._write(name, file, line)) is not None:
            os.close(self._open.pop(name).descriptor)
            file = self._keep(name, after())

    def _write(self, name: LogName, file: _Open, line: bytes) -> Callable[[], _Open] | None:
        """Write a line; return what opens the file that it belongs into where this is not it: another process may have gone on."""
        # Where a file ends is where the next begins: nobody may add to it once that is there.
        flock(file.descriptor, LOCK_EX)
        try:
            found = os.fstat(file.descriptor)
            end = file.start + found.st_size
            if found.st_nlink == 0 or (found.st_size and segment_path(self._root, name, end).exists()):
                return partial(self._reopen, name)
            if found.st_size and found.st_size + len(line) > self._bounds.file_bytes:
                # It is made while the lock is held: whoever waits for that finds it.
                begun = self._begin(name, end)
                return lambda: begun
            os.write(file.descriptor, line)
        finally:
            flock(file.descriptor, LOCK_UN)
        return None

    def _keep(self, name: LogName, file: _Open) -> _Open:
        while len(self._open) >= self._bounds.open_files:
            os.close(self._open.popitem(last=False)[1].descriptor)
        self._open[name] = file
        return file

    def _reopen(self, name: LogName) -> _Open:
        there = segments(self._root, name)
        if not there:
            return self._begin(name, 0)
        last = there[-1]
        descriptor = os.open(last.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        size = last.end - last.start
        if size and os.pread(descriptor, 1, size - 1) != b"\n":  # the disk was full, or the machine fell: the line stays broken
            os.write(descriptor, b"\n")
        return _Open(descriptor, last.start)

    def _begin(self, name: LogName, start: int) -> _Open:
        path = segment_path(self._root, name, start)
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        file = _Open(os.open(path, flags, 0o640), start)
        self._forget(name, path)
        return file

    def _forget(self, name: LogName, newest: Path) -> None:
        """Remove what is too much: the oldest files of this log, and of the folder."""
        for old in segments(self._root, name)[: -self._bounds.files]:
            old.path.unlink(missing_ok=True)
        with os.scandir(newest.parent) as entries:
            paths = [Path(entry.path) for entry in entries]
        if len(paths) > self._bounds.folder_files:
            others = sorted((path for path in paths if path != newest), key=_age)
            for path in others[: len(paths) - self._bounds.folder_files]:
                path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
