"""What a compaction needs of the file system: that only this host writes it, and that two folders can be exchanged in one step."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

from headrace.errors import PipelineError

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_STATFS_BYTES: Final = 256  # more than the structure has on any architecture
_LOCAL: Final = {
    0xEF53,  # ext4
    0x58465342,  # XFS
    0x9123683E,  # Btrfs
    0xF2F52010,  # F2FS
    0x2FC12FC1,  # ZFS
    0xCA451A4E,  # bcachefs
    0x01021994,  # tmpfs
    0x794C7630,  # overlayfs
}
"""The types of file systems that only processes of this host write, as Linux numbers them."""
_UNSUPPORTED: Final = {errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBUSY, errno.EOPNOTSUPP}


class CompactionUnsupported(PipelineError):
    """A table cannot be compacted where it is, now or later."""


def is_local(folder: Path) -> bool:
    """Return whether only processes of this host can write to the file system of the folder."""
    statfs = getattr(ctypes.CDLL(None, use_errno=True), "statfs", None)
    status = ctypes.create_string_buffer(_STATFS_BYTES)
    if statfs is None or statfs(os.fsencode(folder), status):
        return False
    return ctypes.c_ulong.from_buffer(status).value in _LOCAL  # the first field is the type


def exchange(first: Path, second: Path) -> None:
    """Exchange two folders: each name belongs to one of them at any moment.

    Raises:
        CompactionUnsupported: The system or the file system cannot do that.
    """
    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    if rename is None:
        raise CompactionUnsupported("The system has no renameat2.")
    if rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        reason = f"The folders {first} and {second} cannot be exchanged: {os.strerror(number)}"
        raise CompactionUnsupported(reason) if number in _UNSUPPORTED else OSError(number, reason)
