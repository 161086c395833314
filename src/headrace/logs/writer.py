"""Write thousands of logs with a bounded number of open files, each bounded in size."""

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
class LogLimits:
    """Limits: open files, bytes of one file, files of one log, files in one folder of logs."""

    open_files: int = 64
    file_bytes: int = 1024 * 1024
    files: int = 5
    folder_files: int = 200


@dataclass(slots=True)
class _Open:
    descriptor: int
    start: int


class LogFiles:
    """The logs below one folder. Several threads and processes may write, such as a runner and its trigger processes.

    When `append` returns, the kernel has the line, so it survives a kill of the process. The first write error is
    passed to `on_error`, and the next one only after a successful write: a full disk must not stop a trigger.
    """

    def __init__(self, root: Path, on_error: Callable[[OSError], None], limits: LogLimits | None = None) -> None:
        self._root = root
        self._on_error = on_error
        self._limits = limits or LogLimits()
        self._open: OrderedDict[LogName, _Open] = OrderedDict()
        self._lock = Lock()
        self._has_failed = False

    def append(self, name: LogName, line: bytes) -> None:
        """Append one line, which ends with its only newline."""
        try:
            with self._lock:
                self._append(name, line)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                self._on_error(error)
        else:
            self._has_failed = False

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1].descriptor)

    def _append(self, name: LogName, line: bytes) -> None:
        file = self._open.get(name)
        if file is None:
            file = self._add_open(name, self._reopen(name))
        else:
            self._open.move_to_end(name)
        while (after := self._write(name, file, line)) is not None:
            os.close(self._open.pop(name).descriptor)
            file = self._add_open(name, after())

    def _write(self, name: LogName, file: _Open, line: bytes) -> Callable[[], _Open] | None:
        """Write a line. If another process has started a newer file, return a function that opens it, else None."""
        # A file must not grow once its successor exists, because the successor begins at its end.
        flock(file.descriptor, LOCK_EX)
        try:
            status = os.fstat(file.descriptor)
            end = file.start + status.st_size
            if status.st_nlink == 0 or (status.st_size and segment_path(self._root, name, end).exists()):
                return partial(self._reopen, name)
            if status.st_size and status.st_size + len(line) > self._limits.file_bytes:
                # Created under the lock, so that processes that wait for the lock find it.
                next_file = self._begin(name, end)
                return lambda: next_file
            os.write(file.descriptor, line)
        finally:
            flock(file.descriptor, LOCK_UN)
        return None

    def _add_open(self, name: LogName, file: _Open) -> _Open:
        while len(self._open) >= self._limits.open_files:
            os.close(self._open.popitem(last=False)[1].descriptor)
        self._open[name] = file
        return file

    def _reopen(self, name: LogName) -> _Open:
        files = segments(self._root, name)
        if not files:
            return self._begin(name, 0)
        last = files[-1]
        descriptor = os.open(last.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        size = last.end - last.start
        if size and os.pread(descriptor, 1, size - 1) != b"\n":  # the disk was full, or the host crashed: the broken line stays
            os.write(descriptor, b"\n")
        return _Open(descriptor, last.start)

    def _begin(self, name: LogName, start: int) -> _Open:
        path = segment_path(self._root, name, start)
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        file = _Open(os.open(path, flags, 0o640), start)
        self._delete_old(name, path)
        return file

    def _delete_old(self, name: LogName, newest: Path) -> None:
        """Delete the oldest files of this log, and of its folder, beyond the limits."""
        for old in segments(self._root, name)[: -self._limits.files]:
            old.path.unlink(missing_ok=True)
        with os.scandir(newest.parent) as entries:
            paths = [Path(entry.path) for entry in entries]
        if len(paths) > self._limits.folder_files:
            others = sorted((path for path in paths if path != newest), key=_age)
            for path in others[: len(paths) - self._limits.folder_files]:
                path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
