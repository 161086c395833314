"""The progress of one file of a folder: read, handed out and committed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

from headrace.sources.directory.journal import Entry, Sum
from headrace.sources.directory.lines import Chunk, LineReader, Mark
from headrace.sources.files.names import new_lane, text_of
from headrace.sources.files.status import FileKey, Status

QUIET: Final = 1.0
MAX_PAUSE_SECONDS: Final = 30.0
State = Literal["queued", "reading", "settling"]


@dataclass(slots=True, eq=False)
class Lane:
    """One file. Offsets in bytes: `read` up to here, `owed` is the end of the last line handed out, `advanced` what is done.

    `file` is its name now; `status` is from before the last read. `since`: when it changed last, or came to its end. `held`: a line
    failed, and what is done ends before it. `last` and `committed` say where the last line handed out, and the last one that is done,
    start. `lost`: since the scan of that number no name of the folder has led to it. `due`: when it is looked at next.
    """

    name: str
    file: str
    status: Status
    since: float
    read: int = 0
    owed: int = 0
    advanced: int = 0
    state: State = "reading"
    final: bool = False
    held: bool = False
    last: int | None = None
    committed: int | None = None
    lost: int | None = None
    due: float | None = None
    head: Sum | None = None
    check: Sum | None = None
    checks: deque[Sum] = field(default_factory=deque)
    reader: LineReader | None = None

    @classmethod
    def new(cls, file: str, reader: LineReader, now: float) -> Lane:
        """Return the lane of a file that is not known."""
        return cls(new_lane(file), file, reader.status, now, reader=reader)

    @classmethod
    def resumed(cls, entry: Entry, file: str, reader: LineReader, now: float) -> Lane:
        """Return the lane of a file that was begun before the last stop."""
        lane = cls(entry.lane, file, reader.status, now, entry.at, entry.at, entry.at, reader=reader)
        lane.last = lane.committed = entry.last
        lane.head, lane.check = entry.head, entry.check
        return lane

    @property
    def key(self) -> FileKey:
        """Return the identity of the file."""
        return self.status.key

    @property
    def end(self) -> int | None:
        """Return the start of the lane's last line once the file has been read to its end; until then its size,
        which is beyond it.
        """
        return self.last if self.state == "settling" else self.status.size

    @property
    def mark(self) -> Mark:
        """Return the position to resume at, and the checksums that the file must have there."""
        known = next((one for one in reversed(self.checks) if one.end <= self.read), self.check)
        return Mark(self.read, self.head, known)

    @property
    def is_done(self) -> bool:
        """Return whether all lines handed out are advanced."""
        return self.advanced >= self.owed and not self.held

    def took(self, chunk: Chunk) -> None:
        """Record a read."""
        self.read, self.status = chunk.read, chunk.status
        self.checks += chunk.checks
        if self.reader is not None:
            self.head = self.reader.head

    def settle(self, now: float) -> None:
        """Record that the reader has reached the end of the file."""
        self.state = "settling"
        if self.final:
            self.wait(now)
        else:
            self.since, self.due = now, now + QUIET

    def wait(self, now: float) -> None:
        """Schedule the next look. The longer the file has been unchanged, the later it is."""
        self.due = now + min(max((now - self.since) / 4, QUIET), MAX_PAUSE_SECONDS)

    def entry(self, at: int, last: int | None) -> Entry:
        """Return the journal entry that says that all before `at` is done."""
        while self.checks and self.checks[0].end <= at:
            self.check = self.checks.popleft()
        check = None if self.check is None or self.check.end > at else self.check
        inode, birth = self.key
        return Entry(self.name, text_of(self.file), at, last=last, inode=inode, birth=birth, head=self.head, check=check)

    def over(self) -> Entry:
        """Return the journal entry that ends the lane."""
        return Entry(self.name, text_of(self.file), over=True)
