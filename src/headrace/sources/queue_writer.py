"""Putting messages into a queue, from any thread or task of any process on this host."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from threading import Lock
from time import time_ns
from types import TracebackType
from typing import Any, Self

from headrace.errors import UpstreamError, UsageError
from headrace.sources.group_commit import GroupCommit
from headrace.sources.message import Draft, Key, LaneNames, Layout, Sent, draft, drafts
from headrace.sources.queue_file import LAST_IN_LANE, QueueFile, lane_name, place_of
from headrace.sources.queue_wake import ring


class QueueWriter:
    """Sends messages to the queue at `path`, which is made if it is not there. A context manager, with `with` or `async with`.

    What a send has returned for is on the disk. Messages with the same key are in the same lane, and in order; one without a lane or
    key goes to any. Raises `UpstreamError` when the queue cannot be opened.
    """

    def __init__(self, path: str | Path, *, lanes: LaneNames = None) -> None:
        self._path = Path(path).expanduser()
        self._lanes = lanes
        self._lock = Lock()
        self._file: QueueFile | None = None
        self._ids: dict[str, int] = {}
        self._turn = count()
        self._group: GroupCommit[list[Draft], list[Sent]] = GroupCommit(self._append_together)

    def __enter__(self) -> Self:
        with self._lock:
            self._file = QueueFile(self._path, lanes=self._lanes)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self._group.aclose()
        await asyncio.to_thread(self.__exit__, kind, error, traceback)

    def send(self, value: Any, *, lane: str | None = None, key: str | None = None) -> Sent:
        """Send one JSON value (or a `msgspec.Raw` of JSON text); raises `UsageError` when it is none, too long, or the lane unknown."""
        return self._append([[draft(value, lane, key)]])[0][0]

    def send_many(self, values: Iterable[Any], *, lane: str | None = None, key: Key = None) -> int:
        """Send the values in one commit, all or none, and return how many; `key` may be a function of the value."""
        return len(self._append([drafts(values, lane, key)])[0])

    async def asend(self, value: Any, *, lane: str | None = None, key: str | None = None) -> Sent:
        """Send one value without blocking the loop; sends that are waiting at the same time share a commit."""
        return (await self._group.submit([draft(value, lane, key)]))[0]

    async def asend_many(self, values: Iterable[Any], *, lane: str | None = None, key: Key = None) -> int:
        """Send the values, all or none, without blocking the loop, and return how many."""
        return len(await self._group.submit(drafts(values, lane, key)))

    async def _append_together(self, several: list[list[Draft]]) -> list[list[Sent]]:
        return await asyncio.to_thread(self._append, several)

    def _append(self, several: list[list[Draft]]) -> list[list[Sent]]:
        with self._lock:
            if self._file is None:
                raise UsageError(f"The writer of {self._path} is not open.", hint="Use it as `with QueueWriter(path) as queue:`.")
            self._file.still_there()
            # Lanes that this writer makes here are not known to it before they are durable.
            ids = dict(self._ids)
            with self._file.writing() as connection:
                layout = self._file.layout()
                sent = self._insert(connection, layout, several, ids)
            self._ids = ids
            birthmark = self._file.birthmark
        ring(self._path)
        return [[Sent(lane_name(name, birthmark), position) for name, position in places] for places in sent]

    def _insert(
        self, connection: sqlite3.Connection, layout: Layout, several: list[list[Draft]], ids: dict[str, int]
    ) -> list[list[tuple[str, int]]]:
        now = time_ns() // 1000
        lasts: dict[str, int] = {}
        rows: list[tuple[int, bytes, str | None, int]] = []
        places: list[list[tuple[str, int]]] = []
        for group in several:
            places.append([])
            for one in group:
                name = layout.choose(one, self._turn)
                if name not in lasts:
                    ids[name], lasts[name] = _lane(connection, name, ids.get(name))
                position = lasts[name] = lasts[name] + 1
                rows.append((place_of(ids[name], position), one.data, one.key, now))
                places[-1].append((name, position))
        if max(lasts.values(), default=0) > LAST_IN_LANE:
            raise UpstreamError(f"A lane of {self._path} is used up.", hint="Begin another queue.")
        connection.executemany("INSERT INTO message (place, data, key, sent) VALUES (?, ?, ?, ?)", rows)
        connection.executemany("UPDATE lane SET last = ? WHERE id = ?", [(last, ids[name]) for name, last in lasts.items()])
        return places


def _lane(connection: sqlite3.Connection, name: str, known: int | None) -> tuple[int, int]:
    """Return the lane's id and last position; a lane of a new name is made."""
    if known is not None:
        return known, int(connection.execute("SELECT last FROM lane WHERE id = ?", (known,)).fetchone()[0])
    row = connection.execute("SELECT id, last FROM lane WHERE name = ?", (name,)).fetchone()
    if row is None:
        return int(connection.execute("INSERT INTO lane (name) VALUES (?)", (name,)).lastrowid or 0), 0
    return int(row[0]), int(row[1])
