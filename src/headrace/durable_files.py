"""Files that appear whole, once, and stay after a power loss."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final
from uuid import uuid4

_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def create(path: Path, draft: Path) -> bool:
    """Move the file `draft` to `path`; return False where that name is taken, and leave both files as they are.

    Where the file system has no hard links, the draft is renamed. Two processes that do so at the same moment both succeed there, so the
    caller's drafts for one name must have one content.
    """
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            return False
        draft.rename(path)
        return True
    draft.unlink()  # what is written to it later must not change the other name's content
    return True


def replace_file(path: Path, data: bytes) -> None:
    """Write a file durably and put it in the place of `path`, whose folder exists. After a power loss either one is whole."""
    draft = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        draft.write_bytes(data)
        sync(draft)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync(path: Path) -> None:
    """Write a file's content to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Write a folder's list of files to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
