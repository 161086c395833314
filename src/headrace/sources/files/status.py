"""The identity of a file, independent of its name: inode and birth time; and whether a program has it open for
writing. Blocking: call it in a thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import stat
import struct
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

AT_FDCWD: Final = -100
AT_EMPTY_PATH: Final = 0x1000
STATX_ALL: Final = 0xFFF
STATX_BIRTH: Final = 0x800
STATX_BYTES: Final = 256
LAYOUT: Final = struct.Struct("=I24xH2xQQ32xqI4x16xqI")
"""Of struct statx: mask, mode, inode, size, birth time (s, ns), modification time (s, ns)."""

FileKey = tuple[int, int]


class Status(NamedTuple):
    """A file's state. `birth` and `modified` are in nanoseconds since 1970; `birth` is 0 if the file system has none."""

    inode: int
    birth: int
    size: int
    modified: int
    mode: int

    @property
    def key(self) -> FileKey:
        """Return the file's identity. The next file may reuse a deleted file's inode, but not its birth time."""
        return self.inode, self.birth

    @property
    def regular(self) -> bool:
        """Return whether it is a regular file."""
        return stat.S_ISREG(self.mode)


def _statx() -> Any:
    """Return the C library's statx, or None if it has none or the kernel refuses it."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    if call is not None and call(AT_FDCWD, b"/", 0, STATX_ALL, ctypes.create_string_buffer(STATX_BYTES)) == 0:
        return call
    return None


_call_statx: Final = _statx()


def status_of(file: int | str) -> Status:
    """Return the status of an open descriptor, or of the file at a path with its links followed. Raises OSError."""
    if _call_statx is None:
        status = os.fstat(file) if isinstance(file, int) else Path(file).stat()
        return Status(status.st_ino, getattr(status, "st_birthtime_ns", 0), status.st_size, status.st_mtime_ns, status.st_mode)
    buffer = ctypes.create_string_buffer(STATX_BYTES)
    if isinstance(file, int):
        failed = _call_statx(file, b"", AT_EMPTY_PATH, STATX_ALL, buffer)
    else:
        failed = _call_statx(AT_FDCWD, os.fsencode(file), 0, STATX_ALL, buffer)
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), file)
    mask, mode, inode, size, birth, birth_ns, modified, modified_ns = LAYOUT.unpack_from(buffer)
    born = birth * 10**9 + birth_ns if mask & STATX_BIRTH else 0
    return Status(inode, born, size, modified * 10**9 + modified_ns, mode)


def is_written(descriptor: int) -> bool:
    """Return whether a program has the file open for writing. False also if the file system or the permissions hide this.

    The kernel grants a read lease only while no program has the file open for writing. `descriptor` must be read-only.
    """
    if sys.platform != "linux":
        return False
    try:
        # If a program opens the file during the lease, the kernel sends this process a signal, which is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False
