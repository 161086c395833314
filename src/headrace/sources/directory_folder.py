"""One folder on the disk: who may read it, what is in it, and where its finished files go. Blocking: call it in a thread."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import UpstreamError
from headrace.sources.directory_journal import Entry, Identity, Journal
from headrace.sources.directory_lanes import Found, Lane
from headrace.sources.folder_lock import FolderLock

OWN_FOLDER: Final = ".headrace"
DONE_FOLDER: Final = "done"
JOURNAL_NAME: Final = "progress.jsonl"
LOCK_NAME: Final = "lock"
NO_FILE: Final = Identity(0, 0, 0)


class Folder:
    """The folder `path`, opened for reading and for keeping progress in it; raises `UpstreamError` when it cannot be."""

    def __init__(self, path: Path, pattern: str) -> None:
        if not path.exists():
            raise UpstreamError(f"The folder {path} does not exist.", hint="Create it, or correct the path of the Directory.")
        if not path.is_dir():
            raise UpstreamError(f"{path} is a file, not a folder.", hint="Give the folder that the file is in, and a pattern.")
        self.path = path
        self._pattern = pattern
        own = path / OWN_FOLDER
        self._lock = FolderLock(own / LOCK_NAME)
        try:
            own.mkdir(exist_ok=True)
            (path / DONE_FOLDER).mkdir(exist_ok=True)
            if not self._lock.try_acquire():
                raise UpstreamError(
                    f"Another process is reading the folder {path}.",
                    hint="One process at a time may read a folder; stop the other one, or wait for it to end.",
                )
            self.journal = Journal(own / JOURNAL_NAME)
        except OSError as error:
            self._lock.release()
            raise _refused(path, error) from error

    def names_used(self) -> list[str]:
        """Return the names in `done`: they are lanes that have been, even when the journal was lost."""
        return [path.name for path in (self.path / DONE_FOLDER).iterdir()]

    def found(self) -> list[Found]:
        """Return the files to read, in no order. Raises `UpstreamError` when the folder is gone."""
        try:
            with os.scandir(self.path) as entries:
                return [Found(entry.name, identity) for entry in entries if (identity := self._identity(entry)) is not None]
        except OSError as error:
            raise _refused(self.path, error) from error

    def end(self, lanes: list[Lane]) -> None:
        """Record that the lanes are done, then move their files to `done`. A crash in between is repaired at the next opening."""
        ended = [Entry(lane.name, lane.found.file, lane.read, lane.found.identity, last=lane.committed) for lane in lanes]
        try:
            self.journal.append(ended)
            for lane in lanes:
                # Somebody may have been faster, and have taken the file away.
                with suppress(FileNotFoundError):
                    (self.path / lane.found.file).replace(self.path / DONE_FOLDER / lane.name)
            self.journal.append([msgspec.structs.replace(one, moved=True) for one in ended], durable=False)
        except OSError as error:
            raise _refused(self.path, error) from error

    def forget(self, entries: Iterable[Entry]) -> None:
        """Record that the files of these lanes are gone: whatever comes under their names is something else."""
        self.journal.append([msgspec.structs.replace(entry, ended=NO_FILE, moved=True) for entry in entries])

    def close(self) -> None:
        """Let the next process have the folder."""
        self.journal.close()
        self._lock.release()

    def wants(self, name: str) -> bool:
        """Tell whether a file of that name is to be read."""
        return fnmatchcase(name, self._pattern) and not name.startswith(".") and not name.endswith(".part")

    def _identity(self, entry: os.DirEntry[str]) -> Identity | None:
        """Return which file it is; None when it is not one to read, or has gone since it was listed."""
        if not self.wants(entry.name):
            return None
        try:
            stat = entry.stat()
            return Identity(stat.st_ino, stat.st_size, stat.st_mtime_ns) if entry.is_file() else None
        except FileNotFoundError:
            return None


def _refused(path: Path, error: OSError) -> UpstreamError:
    return UpstreamError(
        f"The folder {path} cannot be used: {error.strerror or error}.",
        hint="Headrace keeps its progress in the folder and moves finished files to done/: it must exist, be writable and have free space.",
    )
