"""Copies of dead letters to the broker: the dead letters to copy, and the record of the copies.

Invariants, under the writer's transaction:
- A stream has one cursor, `through`. It only rises, and only for the job that reads the stream.
- A number is taken in the transaction that opens the dead letter, so no open dead letter appears below the cursor.
- A dead letter that is redriven or discarded before its copy is passed over. If it opens again, it has a new number.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, func, insert, select, update

from headrace.core.values.moments import moment
from headrace.core.values.shards import overlap, split_shard_name, whole_name
from headrace.core.values.text import MAX_TEXT_CHARS, cut_text
from headrace.errors import Fenced
from headrace.store.control.jobs import require_running
from headrace.store.custody.lanes import find_shard_streams
from headrace.store.db.database import Database
from headrace.store.db.slices import size_of
from headrace.store.dead_letters.dead_letters import last_number
from headrace.store.dead_letters.texts import whole_text
from headrace.store.dialects.statements import LITTLE_BY_LITTLE, ResultRow, in_list
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import dead_letter_copies, dead_letter_texts, dead_letters
from headrace.wire.custody.copies import MAX_PAGE_DEAD_LETTERS, RecordCopies, UncopiedDeadLetter, UncopiedPage

MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of the raw events of a page with two or more dead letters."""
MAX_COUNTED: Final = 10_000
"""Dead letters of one stream that are counted as not copied yet."""

_cursors = select(dead_letter_copies).where(in_list(dead_letter_copies.c.stream, "streams"))
_cursor = select(dead_letter_copies.c.through).where(dead_letter_copies.c.stream == bindparam("of"))
_beyond = (dead_letters.c.stream == bindparam("of"), dead_letters.c.number > bindparam("after"))
_size = size_of(dead_letters.c.raw, plus=func.coalesce(dead_letter_texts.c.bytes, 0))
_next = (
    select(*(dead_letters.c[name] for name in ("id", "number", "state")), _size)
    .outerjoin(dead_letter_texts, dead_letter_texts.c.dead_letter_id == dead_letters.c.id)
    .where(*_beyond)
    .order_by(dead_letters.c.number)
    .limit(MAX_PAGE_DEAD_LETTERS)
)
_waiting = select(dead_letters.c.id).where(*_beyond, dead_letters.c.state == "open").limit(MAX_COUNTED).subquery()
_count_waiting = select(func.count()).select_from(_waiting)
_columns = [
    dead_letters.c[name] for name in ("number", "id", "kind", "reason", "stream", "lane", "position", "triggers", "attempts", "received")
]
_items = select(*_columns).where(in_list(dead_letters.c.id, "ids")).order_by(dead_letters.c.number)
_names = select(triggers.c.id, triggers.c.name).where(in_list(triggers.c.id, "ids"))
_reads = select(triggers.c.id).where(triggers.c.stream == bindparam("of")).limit(1)
_held = _reads.where(triggers.c.job_id == bindparam("job"))
_leaving = _reads.where(triggers.c.job_id.is_(None), triggers.c.revoked_job_id == bindparam("job"))
_reject = (
    update(dead_letters)
    .where(dead_letters.c.stream == bindparam("of"), dead_letters.c.number == bindparam("rejected_number"))
    .values(not_copied=bindparam("why"))
)


class CopyCounts(NamedTuple):
    """How many dead letters of a stream are copied, rejected by the broker, and (up to `MAX_COUNTED`) not copied yet."""

    copied: int
    rejected: int
    waiting: int


class DeadLetterCopies:
    """The copies of the dead letters of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, job_id: int, reader: str) -> UncopiedPage:
        """Return the next dead letters to copy for the stream that the job reads.

        Raises:
            Fenced: The job does not read the stream.
        """
        with self._database.reading() as connection:
            _require_reader(connection, job_id, reader)
            page = _page(connection, reader)
            if page.through == page.after:
                for former in _former_streams(connection, reader):
                    other = _page(connection, former)
                    if other.through > other.after:
                        return other
            return page

    def record(self, job_id: int, copies: RecordCopies) -> None:
        """Move the cursor of a stream, and mark the dead letters that the broker rejected. A repeated call changes nothing.

        Raises:
            Fenced: The job does not read the stream.
        """
        self._database.write(lambda connection: _record(connection, job_id, copies))


def copy_counts(connection: Connection, streams: Sequence[str], begun: Collection[str] = ()) -> dict[str, CopyCounts]:
    """Return the numbers of copies of those streams whose dead letters are or were copied. The copies of `begun` streams have begun."""
    rows = {row.stream: row for row in connection.execute(_cursors, {"streams": list(streams)})}
    counts = {stream: CopyCounts(row.copied, row.rejected, _count(connection, stream, row.through)) for stream, row in rows.items()}
    return counts | {stream: CopyCounts(0, 0, _count(connection, stream, 0)) for stream in begun if stream not in rows}


def _count(connection: Connection, stream: str, after: int) -> int:
    return int(connection.execute(_count_waiting, {"of": stream, "after": after}).scalar_one())


def _page(connection: Connection, stream: str) -> UncopiedPage:
    after = _through(connection, stream)
    rows = _next_rows(connection, stream, after)
    open_rows = connection.execute(_items, {"ids": [row.id for row in rows if row.state == "open"]}).all()
    named = {trigger for row in open_rows for trigger in json.loads(row.triggers)}
    names = {row.id: row.name for row in connection.execute(_names, {"ids": list(named)})}
    items = [_item(connection, row, names) for row in open_rows]
    return UncopiedPage.model_construct(stream=stream, after=after, through=rows[-1].number if rows else after, dead_letters=items)


def _next_rows(connection: Connection, stream: str, after: int) -> list[ResultRow]:
    """Return dead letters behind the cursor in any state, up to the limits of a page."""
    taken: list[ResultRow] = []
    size = 0
    # The sizes are read one by one: SQLite reads a text to determine its size.
    with connection.execute(_next, {"of": stream, "after": after}, execution_options=LITTLE_BY_LITTLE) as rows:
        for row in rows:
            if row.state == "open":
                size += row.bytes
                if taken and size > MAX_PAGE_BYTES:
                    break
            taken.append(row)
    return taken


def _item(connection: Connection, row: ResultRow, names: dict[int, str]) -> UncopiedDeadLetter:
    values = row._asdict()
    values["triggers"] = [names.get(trigger, f"trigger {trigger}") for trigger in json.loads(row.triggers)]
    values["received"] = moment(row.received)
    return UncopiedDeadLetter(**values, raw=whole_text(connection, row.id))


def _record(connection: Connection, job_id: int, copies: RecordCopies) -> None:
    _require_reader(connection, job_id, copies.reader)
    if copies.stream != copies.reader and copies.stream not in _former_streams(connection, copies.reader):
        raise Fenced(f"Job {job_id} does not copy the dead letters of {copies.stream}.", status=409, problem="fenced")
    through = min(copies.through, last_number(connection))
    if _through(connection, copies.stream) != copies.after or through <= copies.after:
        return
    rejected = [one for one in copies.rejected if copies.after < one.number <= through]
    mine = update(dead_letter_copies).where(dead_letter_copies.c.stream == copies.stream)
    table = dead_letter_copies.c
    counts = {"copied": table.copied + copies.copied, "rejected": table.rejected + len(rejected)}
    if not connection.execute(mine.values(through=through, **counts)).rowcount:
        first = {"stream": copies.stream, "through": through, "copied": copies.copied, "rejected": len(rejected)}
        connection.execute(insert(dead_letter_copies).values(**first))
    if rejected:
        marks = [{"of": copies.stream, "rejected_number": one.number, "why": cut_text(one.reason, MAX_TEXT_CHARS)} for one in rejected]
        connection.execute(_reject, marks)


def _through(connection: Connection, stream: str) -> int:
    return int(connection.execute(_cursor, {"of": stream}).scalar_one_or_none() or 0)


def _former_streams(connection: Connection, reader: str) -> list[str]:
    """Return the streams that read the upstream under another number of shards, for the first shard, which copies for them.

    A shard is leased only after the jobs have released these streams, so no other job copies for them.
    """
    if split_shard_name(reader)[1].number:
        return []
    whole = whole_name(reader)
    streams = {whole, *find_shard_streams(connection).get(whole, ())}
    return sorted(stream for stream in streams if overlap(stream, reader))


def _require_reader(connection: Connection, job_id: int, reader: str) -> None:
    require_running(connection, job_id)
    query = {"of": reader, "job": job_id}
    if connection.execute(_held, query).first() is None and connection.execute(_leaving, query).first() is None:
        raise Fenced(f"Job {job_id} does not read {reader}.", status=409, problem="fenced")
