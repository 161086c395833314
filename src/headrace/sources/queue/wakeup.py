"""Telling the reader of a queue, in another process on the same host, that there is something new: a byte in a named pipe beside it.

A wake-up that is lost costs time, never a message: the reader looks by itself every few seconds.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path


def pipe_of(path: Path) -> Path:
    """Return where the pipe of the queue at `path` is."""
    return path.with_name(path.name + "-wake")


class WakeupPipe:
    """The reader's end. `descriptor` becomes readable when a writer has woken it. Raises OSError where there can be no pipe."""

    def __init__(self, path: Path) -> None:
        pipe = pipe_of(path)
        with suppress(FileExistsError):
            os.mkfifo(pipe, 0o666)
        # Open for writing too, so that the pipe does not count as ended whenever a sender leaves.
        self.descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISFIFO(os.fstat(self.descriptor).st_mode):
            os.close(self.descriptor)
            raise OSError(errno.EEXIST, "a file of that name exists and is not a pipe", str(pipe))

    def silence(self) -> None:
        """Take what was rung so far."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 65536)

    def close(self) -> None:
        """Stop listening; the pipe stays, for the next reader."""
        os.close(self.descriptor)


def ring(path: Path) -> None:
    """Wake the reader of the queue at `path`, if there is one; never blocks, never fails."""
    with suppress(OSError):
        descriptor = os.open(pipe_of(path), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.write(descriptor, b"\0")
        finally:
            os.close(descriptor)
