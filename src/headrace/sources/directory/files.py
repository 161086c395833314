"""Look at a folder and read its files. Blocking: all calls from one thread, except `close`, which is the last one."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from headrace.errors import UpstreamError
from headrace.sources.directory.journal import Entry
from headrace.sources.directory.lane import Lane
from headrace.sources.directory.lanes import Lanes, Sight
from headrace.sources.directory.lines import Chunk, LineReader, Mark, NotRegular, Rewritten
from headrace.sources.directory.waiting import Candidate, Selection
from headrace.sources.files.status import Status, status_of

SLICE_SECONDS: Final = 0.05
SCAN_STEP: Final = 256
BATCH_FILES: Final = 64
BATCH_BYTES: Final = 256 * 1024
"""Maximum bytes, plus one line, read ahead of the stream. They are outside of the memory budget and apply to each folder."""
NOT_A_FILE: Final = "It is not a file."
PASSING: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR, errno.EAGAIN}
"""What may be otherwise a moment later."""


class Visit(NamedTuple):
    """The result of reading a file: its reader (new files) and a chunk, or the reason why there is none.

    `lane`: the lane that is read further. `entry`: the position before the last stop. `rewritten`: the contents
    have changed since. `sight`: the file was removed, is a lane under another name, or cannot be read.
    """

    file: str
    lane: Lane | None = None
    reader: LineReader | None = None
    entry: Entry | None = None
    chunk: Chunk | None = None
    rewritten: bool = False
    sight: Sight | None = None


class Scan:
    """One pass over the folder, in slices.

    `selection` has the waiting files. `inodes` are the inodes of interest that it saw; `sights` are other names of
    such files.
    """

    def __init__(self, path: str, lanes: Lanes, is_selected: Callable[[str], bool]) -> None:
        self.selection = Selection()
        self.inodes: set[int] = set()
        self.sights: list[str] = []
        self._path = path
        self._lanes = lanes
        self._is_selected = is_selected
        self._followed = lanes.followed()
        self._steps = self._run()

    def proceed(self) -> bool:
        """Continue for a moment; return whether there is more. Raises OSError."""
        end = monotonic() + SLICE_SECONDS
        return any(monotonic() >= end for _ in self._steps)

    def _run(self) -> Iterator[None]:
        with os.scandir(self._path) as entries:
            for count, entry in enumerate(entries, 1):
                self._see(entry)
                if self.selection.is_full:
                    yield from self.selection.steps()
                if count % SCAN_STEP == 0:
                    yield
        yield from self.selection.steps()

    def _see(self, entry: os.DirEntry[str]) -> None:
        name, matches = entry.name, self._is_selected(entry.name)
        if entry.inode() in self._followed and not entry.is_dir(follow_symlinks=False):
            self._follow(name, entry.inode())
        if not matches:
            return
        if self._lanes.is_known(name):
            return
        try:
            status = entry.stat()
        except OSError:
            # The open reports the error.
            self.selection.add(Candidate(0, name))
            return
        if status.st_ino in self._followed:
            # The file that a link leads to has an inode of its own.
            self._follow(name, status.st_ino)
        if not stat.S_ISDIR(status.st_mode):
            self.selection.add(Candidate(status.st_mtime_ns, name))

    def _follow(self, name: str, inode: int) -> None:
        """Record a file that may be that of a lane under another name. It is looked at before that lane is closed."""
        self.inodes.add(inode)
        if not self._lanes.is_known(name):
            self.sights.append(name)


class Files:
    """The files of one folder, also the open ones."""

    def __init__(self, path: Path, lanes: Lanes) -> None:
        self._path = str(path)
        self._lanes = lanes
        self._readers: set[LineReader] = set()

    def look(self, files: Iterable[str]) -> list[Sight]:
        """Look at these names."""
        return [self._sight(file) for file in files]

    def visit(self, targets: Iterable[Lane | Candidate]) -> list[Visit]:
        """Read the first or next chunk of each file; of fewer files if they are large."""
        visits: list[Visit] = []
        room = BATCH_BYTES
        for target in targets:
            visit = self._read_on(target) if isinstance(target, Lane) else self._read_new(target.file)
            visits.append(visit)
            if visit.chunk is not None:
                room -= visit.chunk.read - (0 if visit.entry is None else visit.entry.at)
                if room <= 0 or not visit.chunk.at_end:
                    break
        return visits

    def read(self, reader: LineReader, *, final: bool) -> Chunk | str | None:
        """Read the next chunk. Return None if the file was rewritten, or a text with the reason why it cannot be read."""
        try:
            return reader.read(final=final)
        except Rewritten:
            return None
        except OSError as error:
            return _words(error)

    def leave(self, readers: Iterable[LineReader]) -> None:
        """Close these files."""
        for reader in readers:
            self._readers.discard(reader)
            reader.close()

    def close(self) -> None:
        """Close all files."""
        self.leave(tuple(self._readers))

    def _read_new(self, file: str) -> Visit:
        try:
            reader = LineReader(self._in(file))
        except FileNotFoundError:
            return Visit(file, sight=self._sight(file))
        except NotRegular:
            return Visit(file, sight=Sight(file, error=NOT_A_FILE))
        except OSError as error:
            return Visit(file, sight=Sight(file, error=_words(error)))
        self._readers.add(reader)
        try:
            visit = self._first(file, reader)
        except OSError as error:
            visit = Visit(file, sight=Sight(file, error=_words(error)))
        if visit.sight is not None:
            self.leave([reader])
        return visit

    def _first(self, file: str, reader: LineReader) -> Visit:
        if (other := self._renamed(file, reader.status)) is not None:
            return Visit(file, sight=Sight(file, reader.status, renamed=other))
        entry = self._lanes.unfinished(reader.key)
        try:
            if entry is not None:
                reader.resume(Mark(entry.at, entry.head, entry.check))
        except Rewritten:
            entry = None
        try:
            return Visit(file, reader=reader, entry=entry, chunk=reader.read())
        except Rewritten:
            return Visit(file, sight=Sight(file, error="It was written again while it was opened."))

    def _read_on(self, lane: Lane) -> Visit:
        try:
            if lane.reader is None:
                lane.reader = self._reopened(lane)
            if lane.reader is None:
                return Visit(lane.file, lane, sight=self._sight(lane.file))
            return Visit(lane.file, lane, chunk=lane.reader.read(final=lane.final))
        except (Rewritten, NotRegular):
            return Visit(lane.file, lane, rewritten=True)
        except OSError as error:
            return Visit(lane.file, lane, sight=Sight(lane.file, error=_words(error)))

    def _reopened(self, lane: Lane) -> LineReader | None:
        """Reopen the lane's file at its last position. Return None if its name leads to another file."""
        try:
            reader = LineReader(self._in(lane.file))
        except FileNotFoundError:
            return None
        try:
            if reader.key != lane.key:
                reader.close()
                return None
            reader.resume(lane.mark)
        except (Rewritten, OSError):
            reader.close()
            raise
        self._readers.add(reader)
        return reader

    def _sight(self, file: str) -> Sight:
        try:
            status = status_of(self._in(file))
            if stat.S_ISDIR(status.mode):
                return Sight(file)
            if not status.regular:
                return Sight(file, error=NOT_A_FILE)
            return Sight(file, status, renamed=self._renamed(file, status))
        except (FileNotFoundError, NotADirectoryError):
            return Sight(file, error="It is a link to nothing.") if Path(self._in(file)).is_symlink() else Sight(file)
        except OSError as error:
            return Sight(file, error=_words(error))

    def _renamed(self, file: str, status: Status) -> Lane | None:
        """Return the lane of that file if it has another name, which no longer leads to it."""
        lane = self._lanes.of(status.key)
        if lane is None or lane.file == file:
            return None
        if lane.lost is not None:
            return lane
        try:
            return None if status_of(self._in(lane.file)).key == status.key else lane
        except OSError:
            return lane

    def _in(self, file: str) -> str:
        return f"{self._path}/{file}"


def unusable_folder(path: Path, error: OSError) -> UpstreamError:
    """Return the error for a folder that cannot be used."""
    return UpstreamError(
        f"The folder {path} cannot be used: {error.strerror or error}.",
        hint="Headrace keeps its progress in the folder and moves finished files to done/: it must exist, be writable and have free space.",
    )


def _words(error: OSError) -> str:
    return f"It cannot be read: {error.strerror or error}."
