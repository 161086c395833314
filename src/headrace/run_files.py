"""Files in the home folder that record the processes of this machine, their addresses and their states.

The process holds a lock on its file while it lives, so a file whose lock is free is stale, whatever process has its id now. The file has
one size from the beginning, so that it can be written while the disk is full.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import structlog

API: Final = "api.json"
STANDALONE: Final = "standalone.json"
SIZE_BYTES: Final = 16 * 1024
_TRIES: Final = 5
_READING_SECONDS: Final = 0.01


class RunRecord(NamedTuple):
    """What a file says, and whether the process that wrote it lives."""

    facts: Mapping[str, Any]
    alive: bool


class RunFile:
    """The file of this process. A context manager; where the file cannot be written, or another holds it, it does without."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def __enter__(self) -> Self:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._complain(error)
            return self
        if _take(file):
            self._file = file
        else:
            os.close(file)  # another process of this home was first
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def write(self, facts: Mapping[str, Any]) -> None:
        """Say this from now on; facts that are too long are left out."""
        text = json.dumps(facts).encode()
        if self._file is None or len(text) > SIZE_BYTES:
            return
        try:
            os.pwrite(self._file, text.ljust(SIZE_BYTES), 0)
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        structlog.get_logger(__name__).warning("run file not written", path=str(self._path), error=error.strerror)


def read_run_file(path: Path) -> RunRecord | None:
    """Return what the file at `path` says, or None if there is none, or it says nothing."""
    try:
        with path.open("rb") as file:
            facts = _read(file.fileno())
            return None if facts is None else RunRecord(facts, _is_locked(file.fileno()))
    except OSError:
        return None


def _read(file: int) -> Mapping[str, Any] | None:
    for _ in range(_TRIES):  # it may be written now
        try:
            content = json.loads(os.pread(file, SIZE_BYTES, 0))
        except ValueError:
            continue
        return content if isinstance(content, dict) else None
    return None


def _take(file: int) -> bool:
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_READING_SECONDS)  # a reader may look at the lock now
        else:
            return True
    return False


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
