"""The one reader of a queue: take over the queue, fetch, commit. Blocking: all calls from one thread.

An epoch in the queue identifies the reader. Every new reader increments it, and requests of an older one are
refused. A reader is alive until its lease expires. It is dead immediately if its process ends: the kernel then
releases the lock on the file named for its epoch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice, takewhile
from pathlib import Path
from time import time, time_ns
from typing import Final, NamedTuple

from headrace.core.ledger.outcome import AdvanceItem
from headrace.core.values.message_text import decode_metadata
from headrace.errors import HeadraceError, UpstreamError, UpstreamFenced
from headrace.sources.files.folder_lock import FolderLock
from headrace.sources.outgoing import LaneNames
from headrace.sources.queue.file import LANE_BITS, LAST_IN_LANE, QueueFile, connect, lane_name, plain, row_id_of
from headrace.triggers.raw_event import Message
from headrace.triggers.stream_log import LogMark

LEASE_SECONDS: Final = 30.0
FETCH_MESSAGES: Final = 1024
FETCH_BYTES: Final = 256 * 1024
"""Maximum bytes, plus one message, read ahead of the stream. They are outside of the memory budget and apply to each queue."""
LEAST_OF_A_LANE: Final = 32

FETCH_LANES: Final = 4096
EMPTY_LANE_SECONDS: Final = 60.0
MAX_DELETED_LANES: Final = 2000
MAX_DELETED_LANES_PER_COMMIT: Final = 64
MAX_COUNTED_LANES: Final = 10_000


class QueueMessage(Message):
    """A message of a queue; `row_id` is its lane and position in one integer."""

    __slots__ = ("row_id",)

    def __init__(self, data: bytes, lane: str, row_id: int, key: str | None, delivery: int, metadata: bytes | None = None) -> None:
        if metadata is None:
            super().__init__(data, lane, row_id & LAST_IN_LANE, key, delivery)
        else:
            more = decode_metadata(metadata)
            super().__init__(data, lane, row_id & LAST_IN_LANE, key, delivery, more.headers, more.timestamp_ms, more.id)
        self.row_id = row_id


class LaneState(NamedTuple):
    """The last position of a lane, and its last committed position, or None if there is none."""

    last: int
    committed: int | None


class Pending(NamedTuple):
    """A lane with messages to fetch: its full name, the row id of the last fetched message, and of its last message."""

    name: str
    fetched: int
    last: int


class QueueReader:
    """Take over the queue at `path`. `lanes` receives the state of the lanes. Raises `UpstreamError` if another
    process reads it.

    `mark` is that of the event log that the queue had been advanced for, or None if it never was.
    """

    def __init__(self, path: Path, lanes: LaneNames = None) -> None:
        self.lanes: dict[str, LaneState] = {}
        self.mark: LogMark | None = None
        self._pending: dict[int, Pending] = {}
        self._reached: dict[int, int] = {}
        self._empty: dict[int, tuple[str, float]] = {}
        self._change = 0
        self._epoch = 0
        self._lock: FolderLock | None = None
        self._file = QueueFile(path, lanes=lanes)
        try:
            # Fetches are recorded without a sync. After a crash of the machine, the count may lack a delivery.
            with plain(path):
                self._notes = connect(path, synchronous="NORMAL")
            try:
                self._take_over()
            except (HeadraceError, sqlite3.Error):
                self._notes.close()
                raise
        except (HeadraceError, sqlite3.Error):
            self._release()
            self._file.close()
            raise

    def fetch(self) -> list[QueueMessage]:
        """Return the next messages, lane by lane, from the last row id in each; none if all have been fetched.

        Raises `UpstreamFenced` if another reader has taken over.
        """
        self._file.require_file()
        with plain(self._file.path):
            self._look()
            if not self._pending:
                return []
            limit = max(LEAST_OF_A_LANE, FETCH_MESSAGES // len(self._pending))
            messages: list[QueueMessage] = []
            room = FETCH_BYTES
            for id in list(islice(self._pending, FETCH_MESSAGES)):
                if len(messages) >= FETCH_MESSAGES or room <= 0:
                    break
                room -= self._fetch_lane(id, limit, room, messages)
            self._note(messages)
        return messages

    def commit(self, batches: Iterable[Sequence[AdvanceItem]], mark: LogMark | None = None) -> None:
        """Commit a batch in one transaction: delete answered messages, store rejected ones as dead letters, and
        leave failed ones for the next reader.

        `mark` is that of the event log that the batches are recorded in.

        Raises `UpstreamFenced` if another reader has taken over.
        """
        batches = list(batches)
        with self._file.writing() as connection:
            self._fence(connection)
            for batch in batches:
                for run in _runs(batch):
                    _finish(connection, run)
            if mark is not None:
                connection.execute("INSERT OR REPLACE INTO log_mark VALUES (1, ?, ?, ?)", mark)
            self._delete_empty_lanes(connection, MAX_DELETED_LANES_PER_COMMIT)
            committed = [(batch[0].broker_payload, *_committed(connection, batch[0].broker_payload.row_id)) for batch in batches]
        for message, position, is_empty in committed:
            known = self.lanes.get(message.lane)
            self.lanes[message.lane] = LaneState(max(known.last if known else 0, position or 0), position)
            if is_empty:
                self._empty.pop(message.row_id >> LANE_BITS, None)
                self._empty[message.row_id >> LANE_BITS] = message.lane, time()

    @property
    def unread(self) -> int | None:
        """The number of messages that are not fetched, as of the last look, or None if more than MAX_COUNTED_LANES lanes have some."""
        pending = tuple(self._pending.values())  # another thread may change it
        return None if len(pending) > MAX_COUNTED_LANES else sum(one.last - one.fetched for one in pending)

    def renew(self) -> None:
        """Renew the lease, look for new messages, and delete empty lanes. Raises `UpstreamFenced` if another reader has taken over."""
        with self._file.writing(self._notes) as connection:
            self._fence(connection)
            connection.execute("UPDATE queue SET expires = ?", (time() + LEASE_SECONDS,))
            self._delete_empty_lanes(connection, MAX_DELETED_LANES)
        with plain(self._file.path):
            self._look()  # a stream that takes no messages does not fetch

    def close(self) -> None:
        """Release the queue for the next reader."""
        with suppress(HeadraceError), self._file.writing(self._notes) as connection:
            connection.execute("UPDATE queue SET expires = 0 WHERE epoch = ?", (self._epoch,))
        self._notes.close()
        self._file.close()
        self._release()

    def _take_over(self) -> None:
        path = self._file.path
        with self._file.writing() as connection:
            epoch, expires = connection.execute("SELECT epoch, expires FROM queue").fetchone()
            if expires > time() and not _is_dead(path, epoch):
                raise UpstreamError(
                    f"Another process is reading the queue {path}.",
                    hint="One process at a time reads a queue; stop the other one, or wait for it to end.",
                )
            self._epoch = epoch + 1
            self._lock = _locked(path, self._epoch)
            for id, delivered in connection.execute("SELECT id, delivered FROM lane WHERE delivered > 0").fetchall():
                range_of_lane = row_id_of(id, 0), row_id_of(id, delivered)
                connection.execute("UPDATE message SET deliveries = deliveries + 1 WHERE row_id BETWEEN ? AND ?", range_of_lane)
            connection.execute("UPDATE lane SET delivered = 0")
            connection.execute("UPDATE queue SET epoch = ?, expires = ?", (self._epoch, time() + LEASE_SECONDS))
            _lock_path(path, epoch).unlink(missing_ok=True)
            (self._change,) = connection.execute("SELECT changes FROM queue").fetchone()
            row = connection.execute("SELECT log, stream, receipts FROM log_mark").fetchone()
            self.mark = None if row is None else LogMark(*row)
            self._look_at_all(connection)

    def _look_at_all(self, connection: sqlite3.Connection) -> None:
        """Find the lanes with messages, with one index step for each, and the empty lanes."""
        slot = 0
        while (
            row := connection.execute("SELECT row_id FROM message WHERE row_id > ? ORDER BY row_id LIMIT 1", (slot,)).fetchone()
        ) is not None:
            id = row[0] >> LANE_BITS
            name, last = connection.execute("SELECT name, last FROM lane WHERE id = ?", (id,)).fetchone()
            self._see(id, name, last)
            slot = row_id_of(id, LAST_IN_LANE)
        now = time()
        for id, name in connection.execute("SELECT id, name FROM lane"):
            if id not in self._pending:
                self._empty[id] = lane_name(name, self._file.birthmark), now

    def _look(self) -> None:
        """Find the lanes that have changed since the last look."""
        rows = self._file.connection.execute(
            "SELECT id, name, last, change FROM lane WHERE change > ? ORDER BY change LIMIT ?", (self._change, FETCH_LANES)
        ).fetchall()
        if len(rows) == FETCH_LANES:
            # One commit may have changed more lanes than one look reads. This query reads all lanes with its
            # number.
            rows += self._file.connection.execute("SELECT id, name, last, change FROM lane WHERE change = ?", (rows[-1][3],)).fetchall()
        for id, name, last, change in rows:
            self._change = change
            self._see(id, name, last)

    def _see(self, id: int, name: str, last: int) -> None:
        """Record the lane's last position. A new lane is read from its oldest message."""
        self._empty.pop(id, None)
        full = lane_name(name, self._file.birthmark)
        known = self._pending.get(id)
        fetched = self._reached_in(id, last) if known is None else known.fetched
        if row_id_of(id, last) > fetched:
            self._pending[id] = Pending(full, fetched, row_id_of(id, last))
        state = self.lanes.get(full)
        committed = _committed(self._file.connection, row_id_of(id, last))[0] if state is None else state.committed
        self.lanes[full] = LaneState(last, committed)

    def _reached_in(self, id: int, last: int) -> int:
        """Return the row id of the last fetched message of a lane, or the one before its oldest message."""
        if id in self._reached:
            return self._reached[id]
        query = "SELECT min(row_id) FROM message WHERE row_id BETWEEN ? AND ?"
        (oldest,) = self._file.connection.execute(query, (row_id_of(id, 0), row_id_of(id, LAST_IN_LANE))).fetchone()
        return row_id_of(id, last) if oldest is None else int(oldest) - 1

    def _fetch_lane(self, id: int, limit: int, room: int, into: list[QueueMessage]) -> int:
        """Add the lane's next messages to `into`, and return their bytes: at most a little more than `room`.

        A lane with more messages has its next turn after the others.
        """
        name, fetched, last = self._pending.pop(id)
        rows = self._file.connection.execute(
            "SELECT row_id, data, key, metadata, deliveries FROM message WHERE row_id > ? AND row_id <= ? ORDER BY row_id LIMIT ?",
            (fetched, last, limit),
        )
        size, before = 0, len(into)
        for slot, data, key, metadata, deliveries in rows:
            into.append(QueueMessage(data, name, slot, key, deliveries + 1, metadata))
            fetched = slot
            size += len(data)
            if size >= room:
                break
        else:
            if len(into) - before < limit:
                fetched = last
        rows.close()
        self._reached[id] = fetched
        if fetched < last:
            self._pending[id] = Pending(name, fetched, last)
        return size

    def _delete_empty_lanes(self, connection: sqlite3.Connection, limit: int) -> None:
        """Delete lanes that have been empty for a while. None of their positions is reused."""
        before = time() - EMPTY_LANE_SECONDS
        due = [id for id, _ in islice(takewhile(lambda one: one[1][1] <= before, self._empty.items()), limit)]
        if not due:
            return
        layout_names = self._file.layout().names
        for id in due:
            name, _ = self._empty.pop(id)
            if name.rpartition("@")[0] in layout_names or id in self._pending:
                continue
            range_of_lane = row_id_of(id, 0), row_id_of(id, LAST_IN_LANE)
            row = connection.execute(
                "DELETE FROM lane WHERE id = ? AND last <= ? AND NOT EXISTS (SELECT 1 FROM message WHERE row_id BETWEEN ? AND ?)"
                " AND NOT EXISTS (SELECT 1 FROM dead_letter WHERE row_id BETWEEN ? AND ?) RETURNING last",
                (id, self._reached.get(id, row_id_of(id, LAST_IN_LANE)) & LAST_IN_LANE, *range_of_lane, *range_of_lane),
            ).fetchone()
            if row is not None:
                connection.execute("UPDATE queue SET floor = max(floor, ?)", row)
                self._reached.pop(id, None)
                self.lanes.pop(name, None)

    def _note(self, messages: Iterable[QueueMessage]) -> None:
        reached = {message.row_id >> LANE_BITS: message.position for message in messages}
        with self._file.writing(self._notes) as connection:
            self._fence(connection)
            connection.executemany("UPDATE lane SET delivered = ? WHERE id = ?", [(position, id) for id, position in reached.items()])

    def _fence(self, connection: sqlite3.Connection) -> None:
        if connection.execute("SELECT epoch FROM queue").fetchone()[0] != self._epoch:
            raise UpstreamFenced(f"Another reader has taken over the queue {self._file.path}.")

    def _release(self) -> None:
        if self._lock is not None:
            _lock_path(self._file.path, self._epoch).unlink(missing_ok=True)
            self._lock.release()
            self._lock = None


def _lock_path(path: Path, epoch: int) -> Path:
    return path.with_name(f"{path.name}-reader-{epoch}")


def _locked(path: Path, epoch: int) -> FolderLock | None:
    """Return the acquired lock of the reader with that epoch, or None if another process has it. Raises `UpstreamError`."""
    lock = FolderLock(_lock_path(path, epoch))
    try:
        return lock if lock.try_acquire() else None
    except OSError as error:
        raise UpstreamError(
            f"The queue {path} cannot be locked: {error.strerror or error}.", hint="Its folder must be one you may write to."
        ) from error


def _is_dead(path: Path, epoch: int) -> bool:
    """Return whether the process of the reader with that epoch has ended without releasing the queue."""
    lock = _locked(path, epoch)
    if lock is not None:
        lock.release()
    return lock is not None


def _runs(batch: Sequence[AdvanceItem]) -> Iterator[list[AdvanceItem]]:
    """Split the batch at failed messages, and omit them."""
    for failed, run in groupby(batch, key=lambda item: item.outcome.failed > 0):
        if not failed:
            yield list(run)


def _finish(connection: sqlite3.Connection, run: Sequence[AdvanceItem]) -> None:
    now = time_ns() // 1000
    rejected = [(now, item.broker_payload.row_id) for item in run if item.outcome.rejected]
    connection.executemany(
        "INSERT OR IGNORE INTO dead_letter (row_id, data, key, metadata, sent, deliveries, rejected)"
        " SELECT row_id, data, key, metadata, sent, deliveries + 1, ? FROM message WHERE row_id = ?",
        rejected,
    )
    connection.execute("DELETE FROM message WHERE row_id BETWEEN ? AND ?", (run[0].broker_payload.row_id, run[-1].broker_payload.row_id))


def _committed(connection: sqlite3.Connection, row_id: int) -> tuple[int | None, bool]:
    """Return the last position of the lane's committed prefix, or None if its first message is pending; and whether
    the lane is empty.
    """
    id = row_id >> LANE_BITS
    oldest, last, begun = connection.execute(
        "SELECT (SELECT min(row_id) FROM message WHERE row_id BETWEEN ? AND ?), (SELECT last FROM lane WHERE id = ?),"
        " (SELECT begun FROM lane WHERE id = ?)",
        (row_id_of(id, 0), row_id_of(id, LAST_IN_LANE), id, id),
    ).fetchone()
    position = last if oldest is None else (oldest & LAST_IN_LANE) - 1
    return None if position is None or position <= begun else int(position), oldest is None
