"""Detect listings of a folder by any process of this host, through inotify."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headrace.pipeline.tables.compaction.file_system import CompactionUnsupported

_IN_ACCESS: Final = 0x1
_IN_OPEN: Final = 0x20
_IN_ONLYDIR: Final = 0x1000000
_IN_Q_OVERFLOW: Final = 0x4000
_EVENT: Final = struct.Struct("iIII")
"""Watch descriptor, mask, cookie, and the bytes of the name that follows."""
_BUFFER_BYTES: Final = 65_536


class ListingWatch:
    """Reports when a process opens a folder, or reads its names.

    Raises:
        CompactionUnsupported: The system has no inotify.
        OSError: The machine's limit of inotify instances or watches is reached.
    """

    def __init__(self, folder: Path) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "inotify_init1"):
            raise CompactionUnsupported("The system has no inotify, so that listings of the folder are not seen.")
        self._descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise _error(folder)
        if library.inotify_add_watch(self._descriptor, os.fsencode(folder), _IN_OPEN | _IN_ACCESS | _IN_ONLYDIR) < 0:
            error = _error(folder)
            os.close(self._descriptor)
            raise error
        self._events = select.poll()  # unlike select, it takes descriptors beyond 1,023
        self._events.register(self._descriptor, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        os.close(self._descriptor)

    def is_quiet(self, seconds: float) -> bool:
        """Wait until the folder is listed, or for `seconds`. Return whether it was not listed since the last call, and in this time."""
        end = time.monotonic() + seconds
        while not self._was_listed():
            left = end - time.monotonic()
            if left <= 0:
                return True
            self._events.poll(left * 1000)
        return False

    def _was_listed(self) -> bool:
        """Read all waiting events. Return whether one is a listing, or whether events are missing."""
        was_listed = False
        while True:
            try:
                events = os.read(self._descriptor, _BUFFER_BYTES)
            except BlockingIOError:
                return was_listed
            offset = 0
            while offset < len(events):
                _, mask, _, name_bytes = _EVENT.unpack_from(events, offset)
                offset += _EVENT.size + name_bytes
                # An event with a name is the access to a file in the folder.
                was_listed |= bool(mask & _IN_Q_OVERFLOW) or name_bytes == 0


def _error(folder: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"The folder {folder} cannot be watched for listings: {os.strerror(number)}")
