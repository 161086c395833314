"""Wake the reader of a queue, in another process on the same host, with a byte in a named pipe beside the file.

A lost wake-up costs time, never a message: the reader also looks every few seconds.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path


def pipe_of(path: Path) -> Path:
    """Return the path of the pipe for the queue at `path`."""
    return path.with_name(path.name + "-wake")


class WakeupPipe:
    """The reader's end. `descriptor` becomes readable when a writer has woken the reader. Raises OSError if no pipe
    can be created.
    """

    def __init__(self, path: Path) -> None:
        pipe = pipe_of(path)
        with suppress(FileExistsError):
            os.mkfifo(pipe, 0o666)
        # Also open for writing, so that the pipe does not end whenever a sender closes it.
        self.descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISFIFO(os.fstat(self.descriptor).st_mode):
            os.close(self.descriptor)
            raise OSError(errno.EEXIST, "a file of that name exists and is not a pipe", str(pipe))

    def drain(self) -> None:
        """Drain the wake-ups received so far."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 65536)

    def close(self) -> None:
        """Close the reader's end. The pipe remains for the next reader."""
        os.close(self.descriptor)


def wake_reader(path: Path) -> None:
    """Wake the reader of the queue at `path`, if there is one. Never blocks, never fails."""
    with suppress(OSError):
        descriptor = os.open(pipe_of(path), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.write(descriptor, b"\0")
        finally:
            os.close(descriptor)
