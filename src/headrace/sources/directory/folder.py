"""One folder on the disk: its lock, its journal, and its finished files. Blocking: all calls from one thread."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple

import structlog

from headrace.durable_files import sync_folder
from headrace.errors import UpstreamError
from headrace.sources.directory.files import unusable_folder
from headrace.sources.directory.journal import Entry, Journal
from headrace.sources.files.folder_lock import FolderLock
from headrace.sources.files.names import with_suffix
from headrace.sources.files.status import Status, is_written, status_of

OWN_FOLDER: Final = ".headrace"
DONE_FOLDER: Final = "done"
JOURNAL_NAME: Final = "progress.jsonl"
LOCK_NAME: Final = "lock"
MAX_DELETED_ENTRIES: Final = 400
"""Old finished files that one call deletes: other calls on the journal must not wait longer."""

log = structlog.get_logger(__name__)


class Finished(NamedTuple):
    """A file that was read and advanced to its end. `over` is its last journal entry; `moves` says whether its name
    is one of the folder's.
    """

    lane: str
    file: str
    status: Status
    over: Entry
    moves: bool


class Moved(NamedTuple):
    """The outcome for a finished file: `done`; `changed` since it was read; `written` by a program that has it
    open; or `failed`, with the reason.

    `file` is its present name, if it is not done.
    """

    lane: str
    file: str
    outcome: Literal["done", "changed", "written", "failed"]
    error: str = ""


class Folder:
    """Open the folder `path` to store progress in it. Raises `UpstreamError` if this fails.

    `keep_done`: the number of days for which finished files are retained; None retains all of them.
    """

    def __init__(self, path: Path, keep_done: int | None = None) -> None:
        if not path.exists():
            raise UpstreamError(f"The folder {path} does not exist.", hint="Create it, or correct the path of the Directory.")
        if not path.is_dir():
            raise UpstreamError(f"{path} is a file, not a folder.", hint="Give the folder that the file is in, and a pattern.")
        self.path = path
        self._keep_done = keep_done
        self._swept: date | None = None
        self._old: list[Path] = []
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
            self._notifies_writers = not self._seems_written(own)
            self.journal = Journal(own / JOURNAL_NAME)
        except OSError as error:
            self._lock.release()
            raise unusable_folder(path, error) from error

    def finish(self, files: Iterable[Finished]) -> list[Moved]:
        """Move the files to `done`, in a folder of the day, and record that their lanes are over.

        The next opening repairs a crash before the record: it moves the file, or finds that it was moved. Raises
        `UpstreamError` if the path leads to another folder now.
        """
        today = day()
        files = list(files)
        done = self.path / DONE_FOLDER / today.isoformat()
        try:
            done.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return [_failed(one, error) for one in files]
        moved = [self._finish(one, done) for one in files]
        self._record([one.over for one, how in zip(files, moved, strict=True) if how.outcome == "done"], done)
        self._sweep(today)
        return moved

    def close(self) -> None:
        """Release the folder for the next process."""
        self.journal.close()
        self._lock.release()

    def _record(self, over: list[Entry], done: Path) -> None:
        if not over:
            return
        try:
            sync_folder(done)
            self.journal.append(over, durable=False)
        except OSError as error:
            # The next opening sees that the files were moved.
            log.warning("finished files not recorded", folder=str(self.path), error=str(error))

    def _finish(self, one: Finished, done: Path) -> Moved:
        path = self.path / one.file
        if not one.moves:
            return Moved(one.lane, one.file, "done")
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                if not _is_same(status_of(descriptor), one.status):
                    return Moved(one.lane, one.file, "changed")
                if self._is_written(descriptor):
                    return Moved(one.lane, one.file, "written")
                return self._move(one, path, done, descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return Moved(one.lane, one.file, "changed")
        except OSError as error:
            return _failed(one, error)

    def _move(self, one: Finished, path: Path, done: Path, descriptor: int) -> Moved:
        """Move the file. Move it back immediately if it turns out to be another one, or to have grown."""
        link = os.lstat(path)
        target = self._free(done, one)
        path.rename(target)
        if not os.path.samestat(os.lstat(target), link) or status_of(descriptor).size != one.status.size or self._is_written(descriptor):
            return Moved(one.lane, self._put_back(target, path, one), "changed")
        return Moved(one.lane, one.file, "done")

    def _put_back(self, target: Path, path: Path, one: Finished) -> str:
        """Move a file back from `done`, under its name or, if that is in use, under a unique name; return that name."""
        for back in (path, path.with_name(with_suffix(path.name, f"~{one.lane.rpartition('@')[2][-12:]}"))):
            with suppress(FileExistsError):
                os.link(target, back, follow_symlinks=False)
                target.unlink()
                log.debug("file changed while it was moved", folder=str(self.path), file=back.name)
                return back.name
        raise OSError(f"{target} cannot be moved back")

    def _free(self, done: Path, one: Finished) -> Path:
        """Return the path of the file in `done`: under its own name, if no other has it."""
        target = done / one.file
        if not os.path.lexists(target):
            return target
        return done / with_suffix(one.file, f"~{one.lane.rpartition('@')[2][-12:]}")

    def _is_written(self, descriptor: int) -> bool:
        return self._notifies_writers and is_written(descriptor)

    @staticmethod
    def _seems_written(own: Path) -> bool:
        """Return whether the file system reports every file as open for writing. Its reports are then ignored."""
        probe = own / "probe"
        probe.write_bytes(b"")
        descriptor = os.open(probe, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return is_written(descriptor)
        finally:
            os.close(descriptor)
            probe.unlink()

    def _sweep(self, today: date) -> None:
        """Delete the day folders that exceed the retention of finished files, a few files at a time."""
        if self._keep_done is None:
            return
        if self._swept != today:
            self._swept = today
            before = (today - timedelta(days=self._keep_done)).isoformat()
            self._old = [folder for folder in (self.path / DONE_FOLDER).iterdir() if _is_day(folder.name) and folder.name < before]
        room = MAX_DELETED_ENTRIES
        while self._old and room > 0:
            folder = self._old[-1]
            try:
                room -= (deleted := _delete_some(folder, room))
            except OSError as error:
                log.warning("finished files not deleted", folder=str(folder), error=str(error))
                self._old.pop()  # until tomorrow
                continue
            if not deleted:
                self._old.pop()
                log.info("finished files deleted", folder=str(folder))


def day() -> date:
    """Return the day whose folder receives finished files."""
    return datetime.now(UTC).date()


def _delete_some(folder: Path, limit: int) -> int:
    """Delete up to `limit` entries of a folder, or the folder if it is empty. Return the number of deleted entries."""
    with os.scandir(folder) as entries:
        some = list(islice(entries, limit))
    for entry in some:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)  # noqa: PTH108
    if not some:
        folder.rmdir()
    return len(some)


def _failed(one: Finished, error: OSError) -> Moved:
    return Moved(one.lane, one.file, "failed", f"It cannot be moved to {DONE_FOLDER}/: {error.strerror or error}.")


def _is_day(name: str) -> bool:
    try:
        return date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False


def _is_same(one: Status, other: Status) -> bool:
    return (one.key, one.size, one.modified) == (other.key, other.size, other.modified)
