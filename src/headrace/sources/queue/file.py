"""The file of a queue: one SQLite database in WAL mode. Blocking: call it in a thread.

A message's `row_id` is its lane's id and its position in one integer, so that a lane is one range of the table.

Invariant: positions of a lane rise one by one and are never reused. A lane that has been empty for a while is
deleted. A lane that is created later, under any name, begins after the `floor`, the highest position of a deleted
lane.

`change` is the number of a lane's last change among all changes, so that a reader finds new messages without a look
at all lanes. A lane's full name ends in `@` and the queue's birthmark. A queue that was deleted and created again
is another queue, and none of its lanes is mistaken for an old one.

`metadata` has the id, the headers and the time of a message as JSON, if its sender gave any.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
import structlog

from headrace.durable_files import sync_folder
from headrace.errors import HeadraceError, StorageBusy, StorageFull, UpstreamError
from headrace.sources.outgoing import LaneLayout, LaneNames
from headrace.sources.queue.turn import Turn

APPLICATION: Final = 0x48525155
VERSION: Final = 5
BUSY_SECONDS: Final = 20.0
"""Time that a writer waits for its turn, and then for a transaction of another program."""
ROW_BYTES: Final = 50
"""About the bytes of a message in the file, without its data and metadata."""
LANE_BITS: Final = 40
LAST_IN_LANE: Final = (1 << LANE_BITS) - 1

SCHEMA: Final = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE queue (
    one INTEGER PRIMARY KEY CHECK (one = 1), birthmark TEXT NOT NULL, lanes TEXT NOT NULL, epoch INTEGER NOT NULL, expires REAL NOT NULL,
    changes INTEGER NOT NULL DEFAULT 0, floor INTEGER NOT NULL DEFAULT 0);
CREATE TABLE lane (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, last INTEGER NOT NULL DEFAULT 0, delivered INTEGER NOT NULL DEFAULT 0,
    begun INTEGER NOT NULL DEFAULT 0, change INTEGER NOT NULL DEFAULT 0);
CREATE INDEX lane_change ON lane (change);
CREATE TABLE message (
    row_id INTEGER PRIMARY KEY, data BLOB NOT NULL, key TEXT, metadata BLOB, sent INTEGER NOT NULL,
    deliveries INTEGER NOT NULL DEFAULT 0);
CREATE TABLE dead_letter (
    row_id INTEGER PRIMARY KEY, data BLOB NOT NULL, key TEXT, metadata BLOB, sent INTEGER NOT NULL, deliveries INTEGER NOT NULL,
    rejected INTEGER NOT NULL);
CREATE TABLE log_mark (
    one INTEGER PRIMARY KEY CHECK (one = 1), log TEXT NOT NULL, stream TEXT NOT NULL, receipts INTEGER NOT NULL);
"""

log = structlog.get_logger(__name__)


def row_id_of(lane_id: int, position: int) -> int:
    """Return the row id of the message at `position` of the lane."""
    return lane_id << LANE_BITS | position


def lane_name(name: str, birthmark: str) -> str:
    """Return the full name of a lane."""
    return f"{name}@{birthmark}"


class QueueFile:
    """The queue at `path`, created if it does not exist and `create` is set. `lanes` change how keys are spread
    from now on. Changes wait up to `busy_seconds` for other writers.

    Raises `UpstreamError` if it cannot be opened.
    """

    def __init__(self, path: Path, *, lanes: LaneNames = None, create: bool = True, busy_seconds: float = BUSY_SECONDS) -> None:
        layout = None if lanes is None else LaneLayout.of(lanes)
        if create and not path.exists():
            _create(path, layout or LaneLayout.of(1))
        elif not path.exists():
            raise UpstreamError(f"There is no queue at {path}.", hint="Is the path right? `headrace send` makes one.")
        if path.is_dir():
            raise UpstreamError(f"{path} is a folder, not a queue.", hint="Give the path of a file; it is made if it is not there.")
        self.path = path
        self._busy_seconds = busy_seconds
        with plain(path):
            status = path.stat()
            self._file = (status.st_dev, status.st_ino)
            self.connection = connect(path, busy_seconds=busy_seconds)
            self._turn: Turn | None = None
            try:
                recognise(self.connection, path)
                self._turn = Turn(path)
                self.birthmark: str = self.connection.execute("SELECT birthmark FROM queue").fetchone()[0]
            except (sqlite3.Error, HeadraceError):
                self.connection.close()
                raise
        if layout is not None:
            try:
                self._lay_out(layout)
            except HeadraceError:
                self.close()
                raise

    def layout(self) -> LaneLayout:
        """Return the current lane layout."""
        return msgspec.json.decode(self.connection.execute("SELECT lanes FROM queue").fetchone()[0], type=LaneLayout)

    def require_file(self) -> None:
        """Raise `UpstreamError` if the path no longer leads to the open file."""
        with suppress(FileNotFoundError):
            status = self.path.stat()
            if (status.st_dev, status.st_ino) == self._file:
                return
        raise UpstreamError(f"The queue {self.path} was moved or deleted while it was open.", hint="Open it again.")

    @contextmanager
    def writing(self, using: sqlite3.Connection | None = None) -> Iterator[sqlite3.Connection]:
        """Hold the only write lock. The changes of the block are durable when it has ended, or undone if it raised.

        Writers first wait in the queue of a kernel lock. SQLite itself would poll with growing pauses. Raises `StorageBusy` after
        `busy_seconds`.
        """
        with self._at_turn(), plain(self.path), using or self.connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _at_turn(self) -> Iterator[None]:
        if self._turn is None:
            raise UpstreamError(f"The queue {self.path} is closed.")
        descriptor = self._turn.acquire(self._busy_seconds)
        try:
            yield
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
        self._turn = None

    def _lay_out(self, layout: LaneLayout) -> None:
        with plain(self.path):
            if self.layout() == layout:
                return
        with self.writing() as connection:
            before = self.layout()
            connection.execute("UPDATE queue SET lanes = ?", (msgspec.json.encode(layout).decode(),))
            (epoch,) = connection.execute("SELECT epoch FROM queue").fetchone()
            if epoch == 0:
                spread(connection, before, layout)
            waiting = epoch > 0 and connection.execute("SELECT EXISTS (SELECT 1 FROM message)").fetchone()[0]
        if waiting:
            log.warning("lanes of a queue changed while messages wait in it", path=str(self.path), lanes=layout.names)


def has_more_than(path: Path, max_bytes: int, *, busy_seconds: float = BUSY_SECONDS) -> bool:
    """Return whether the unread messages of the queue at `path` have more than `max_bytes`, about. Dead letters do not count.

    It has a connection of its own, so that it does not wait for writers.
    """
    with plain(path), closing(connect(path, busy_seconds=busy_seconds)) as connection:
        pages, free, page_bytes = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * page_bytes <= max_bytes:
            return False
        # The file also has dead letters, and pages that are not full. SQLite takes the lengths of blobs from the head of a row, but would
        # read the whole row for that of a text: so a key counts with the row.
        unread = connection.execute("SELECT coalesce(sum(length(data) + coalesce(length(metadata), 0) + ?), 0) FROM message", (ROW_BYTES,))
        return int(unread.fetchone()[0]) > max_bytes


def recognise(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `UpstreamError` unless the database is a queue of this version."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION:
        raise UpstreamError(f"{path} is a database, but not a queue of Headrace.", hint="Give a path of its own to the queue.")
    if version != VERSION:
        hint = "Use the newer Headrace that made it." if version > VERSION else "It is from before 0.1.0: start with a new queue."
        raise UpstreamError(f"The queue {path} has version {version}; this Headrace knows {VERSION}.", hint=hint)


def new_change(connection: sqlite3.Connection) -> int:
    """Return a number that is higher than that of any earlier change. Call it within a transaction."""
    connection.execute("UPDATE queue SET changes = changes + 1")
    return int(connection.execute("SELECT changes FROM queue").fetchone()[0])


def lane_row(connection: sqlite3.Connection, name: str, known: int | None) -> tuple[int, int]:
    """Return the lane's id (`known`: the previous one) and last position. A missing lane is created after all deleted ones."""
    if known is not None:
        row = connection.execute("SELECT last FROM lane WHERE id = ? AND name = ?", (known, name)).fetchone()
        if row is not None:
            return known, int(row[0])
    row = connection.execute("SELECT id, last FROM lane WHERE name = ?", (name,)).fetchone()
    if row is None:
        (floor,) = connection.execute("SELECT floor FROM queue").fetchone()
        inserted = connection.execute("INSERT INTO lane (name, last, begun) VALUES (?, ?, ?)", (name, floor, floor))
        return int(inserted.lastrowid or 0), int(floor)
    return int(row[0]), int(row[1])


def spread(connection: sqlite3.Connection, before: LaneLayout, layout: LaneLayout) -> None:
    """Move unread messages with a key to the lanes that `layout` has for it."""
    known: dict[str, tuple[int, int]] = {}
    moved: list[tuple[int, int]] = []
    rows = [connection.execute("SELECT id FROM lane WHERE name = ?", (name,)).fetchone() for name in before.names]
    for id in [row[0] for row in rows if row is not None]:
        lane_range = row_id_of(id, 0), row_id_of(id, LAST_IN_LANE)
        keyed = connection.execute(
            "SELECT row_id, key FROM message WHERE row_id BETWEEN ? AND ? AND key IS NOT NULL ORDER BY row_id", lane_range
        )
        for slot, key in keyed.fetchall():
            name = layout.of_key(key)
            if name not in known:
                known[name] = lane_row(connection, name, None)
            if known[name][0] != id:
                known[name] = known[name][0], known[name][1] + 1
                moved.append((row_id_of(*known[name]), slot))
    connection.executemany("UPDATE message SET row_id = ? WHERE row_id = ?", moved)
    change = new_change(connection)
    connection.executemany("UPDATE lane SET last = ?, change = ? WHERE id = ?", [(last, change, id) for id, last in known.values()])


def connect(path: Path, *, synchronous: str = "FULL", busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Return a connection to the existing database at `path`."""
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=rw", uri=True, timeout=busy_seconds, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@contextmanager
def plain(path: Path) -> Iterator[None]:
    """Raise the errors of SQLite as errors of Headrace."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StorageBusy(
                f"The queue {path} is in use by another program and does not answer.", hint="Does something hold a transaction open in it?"
            ) from error
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY):
            raise StorageFull(
                f"The queue {path} takes no more: {error}.", hint="Is the disk full? May you write to the file and its folder?"
            ) from error
        if code == sqlite3.SQLITE_NOTADB:
            raise UpstreamError(f"{path} is a file, but not a queue.", hint="Give a path of its own to the queue.") from error
        raise UpstreamError(f"The queue {path} cannot be used: {error}.", hint="Is it a file you may read and write?") from error


def make_queue_folder(path: Path) -> None:
    """Make the folder of the queue at `path`, which only its owner can read. Raises `UpstreamError`.

    A power loss does not remove it, else the messages in it would be lost.
    """
    try:
        missing = list(takewhile(lambda folder: not folder.exists(), path.parents))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in missing:
            with suppress(PermissionError):  # a folder may admit new entries but no readers
                sync_folder(folder.parent)
    except OSError as error:
        raise UpstreamError(
            f"The folder {path.parent} cannot be made: {error.strerror or error}.", hint="Its parent must be one you may write to."
        ) from error


def _create(path: Path, layout: LaneLayout) -> None:
    """Create the queue under another name, then link it to its own. Invariant: it exists whole or not at all, even
    if another process creates it.
    """
    if not path.parent.is_dir():
        raise UpstreamError(f"The folder {path.parent} does not exist.", hint="Create it, or correct the path of the queue.")
    part = path.with_name(f".{path.name}-{secrets.token_hex(4)}.part")
    try:
        with plain(path), closing(sqlite3.connect(part, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN; {SCHEMA} COMMIT;")
            connection.execute(
                "INSERT INTO queue (one, birthmark, lanes, epoch, expires) VALUES (1, ?, ?, 0, 0)",
                (secrets.token_hex(3), msgspec.json.encode(layout).decode()),
            )
        with suppress(FileExistsError):
            os.link(part, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise UpstreamError(
            f"The queue {path} cannot be made: {error.strerror or error}.", hint="Its folder must be one you may write to."
        ) from error
    finally:
        part.unlink(missing_ok=True)
