"""Peek at the file of a `Queue` or of an `Http` endpoint: a read-only connection reads the messages that are not deleted."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from headrace.errors import UpstreamError
from headrace.sources.http.upstream import Http
from headrace.sources.peeks import peek as port
from headrace.sources.queue.file import LANE_BITS, LAST_IN_LANE, lane_name, plain, recognise, row_id_of
from headrace.sources.queue.reader import QueueMessage
from headrace.sources.queue.upstream import Queue
from headrace.triggers.raw_event import RawEvent


async def peek(upstream: Queue | Http, request: port.PeekRequest) -> port.Peek:
    """Return the messages of the queue. An advanced message is not in it any more."""
    path = upstream.queue if isinstance(upstream, Http) else upstream.path
    return await asyncio.to_thread(_peek, path, request)


def _peek(path: Path, request: port.PeekRequest) -> port.Peek:
    if not path.is_file():
        raise UpstreamError(f"There is no queue at {path}.", hint="Is the path right? The first reader or sender creates the file.")
    with plain(path), closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as connection:
        recognise(connection, path)
        connection.execute("BEGIN")  # one snapshot
        (birthmark,) = connection.execute("SELECT birthmark FROM queue").fetchone()
        lists = [
            _messages(connection, id, lane_name(name, birthmark), request.limit) for id, name in _lanes(connection, birthmark, request)
        ]
    return port.Peek(port.in_turn(lists, request.limit))


def _lanes(connection: sqlite3.Connection, birthmark: str, request: port.PeekRequest) -> list[tuple[int, str]]:
    """Return the lane of the request, or the first lanes that have messages."""
    if request.lane is not None:
        names = (request.lane, request.lane.removesuffix(f"@{birthmark}"))
        rows: list[tuple[int, str]] = connection.execute("SELECT id, name FROM lane WHERE name IN (?, ?)", names).fetchall()
        if not rows:
            some = connection.execute("SELECT name FROM lane ORDER BY id LIMIT 1000").fetchall()
            raise port.unknown_lane(request.lane, [lane_name(name, birthmark) for (name,) in some])
        return rows
    lanes: list[tuple[int, str]] = []
    row_id = 0
    while len(lanes) < request.limit:
        first = connection.execute("SELECT row_id FROM message WHERE row_id > ? ORDER BY row_id LIMIT 1", (row_id,)).fetchone()
        if first is None:
            break
        id = first[0] >> LANE_BITS
        (name,) = connection.execute("SELECT name FROM lane WHERE id = ?", (id,)).fetchone()
        lanes.append((id, name))
        row_id = row_id_of(id, LAST_IN_LANE)
    return lanes


def _messages(connection: sqlite3.Connection, id: int, lane: str, count: int) -> list[RawEvent]:
    rows = connection.execute(
        "SELECT row_id, data, key, metadata, deliveries FROM message WHERE row_id BETWEEN ? AND ? ORDER BY row_id LIMIT ?",
        (row_id_of(id, 0), row_id_of(id, LAST_IN_LANE), count),
    )
    messages: list[RawEvent] = []
    size = 0
    for row_id, data, key, metadata, deliveries in rows:
        messages.append(QueueMessage(data, lane, row_id, key, deliveries + 1, metadata))
        size += len(data)
        if size > port.MAX_PEEK_BYTES:
            break
    return messages
