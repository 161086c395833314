"""The messages of a logical replication stream: frames of the replication protocol, and version 1 of `pgoutput` within them. Pure.

Column values are in PostgreSQL's text format.
"""

from __future__ import annotations

import struct
from enum import Enum
from struct import Struct
from typing import Final, Literal, NamedTuple, TypeAlias

from headrace.errors import StreamError


class Unchanged(Enum):
    """The type of `UNCHANGED`."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
"""A large value that an update has not changed, and that the server therefore does not send."""

Value: TypeAlias = bytes | Unchanged | None
Row: TypeAlias = tuple[Value, ...]
Operation: TypeAlias = Literal["insert", "update", "delete", "truncate"]


class Column(NamedTuple):
    """One column of a table. `is_key` says whether it belongs to the replica identity."""

    name: str
    type_oid: int
    is_key: bool


class Relation(NamedTuple):
    """A table as of the changes that follow. `identity` is its replica identity: d(efault), n(othing), f(ull) or i(ndex)."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]

    @property
    def qualified_name(self) -> str:
        """The name with its schema."""
        return f"{self.schema}.{self.name}"


class Begin(NamedTuple):
    """The begin of a committed transaction. `commit_lsn` is where its commit record begins."""

    commit_lsn: int
    committed_us: int
    xid: int


class Commit(NamedTuple):
    """The end of a transaction. `end_lsn` is where its commit record ends."""

    end_lsn: int


class Change(NamedTuple):
    """One changed row. `before` has only the key columns unless the replica identity is full, or is None."""

    operation: Operation
    relation: Relation
    before: Row | None
    after: Row | None


class Truncate(NamedTuple):
    """Truncated tables."""

    relations: tuple[Relation, ...]
    cascade: bool
    restart_identity: bool


class WalData(NamedTuple):
    """A frame with one message of `pgoutput`."""

    message: bytes


class Keepalive(NamedTuple):
    """A frame without data. All changes before `lsn` were sent."""

    lsn: int
    asks_reply: bool


Message: TypeAlias = Begin | Commit | Change | Truncate

EPOCH_US: Final = 946_684_800_000_000
"""The begin of PostgreSQL's time, 2000-01-01, in microseconds since 1970."""
_WAL_HEADER_BYTES: Final = 25
_keepalive: Final = Struct("!QqB")
_status: Final = Struct("!cQQQqB")
_begin: Final = Struct("!Qqi")
_commit: Final = Struct("!xQQq")
_relation_end: Final = Struct("!cH")
_column_end: Final = Struct("!ii")
_int16: Final = Struct("!H")
_int32: Final = Struct("!I")
_truncate: Final = Struct("!IB")


def parse_frame(frame: bytes) -> WalData | Keepalive:
    """Return the frame of a replication stream. Raises `StreamError` if its kind is unknown."""
    kind = frame[:1]
    if kind == b"w" and len(frame) > _WAL_HEADER_BYTES:
        return WalData(frame[_WAL_HEADER_BYTES:])
    if kind == b"k" and len(frame) == 1 + _keepalive.size:
        lsn, _, asks_reply = _keepalive.unpack_from(frame, 1)
        return Keepalive(lsn, bool(asks_reply))
    raise StreamError(f"PostgreSQL sent an unknown frame: {frame[:20]!r}.")


def status_frame(received: int, flushed: int, now_us: int, *, asks_reply: bool) -> bytes:
    """Return the frame that confirms all changes before `flushed`. `now_us` counts from 1970."""
    return _status.pack(b"r", max(received, flushed), flushed, flushed, now_us - EPOCH_US, asks_reply)


class Parser:
    """Parses the messages of one stream. It keeps the description of each table until the next one arrives."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}

    def parse(self, data: bytes) -> Message | None:
        """Return the message, or None if it has no change.

        Raises:
            StreamError: It is not a message of `pgoutput`, or names a table that was not described.
        """
        try:
            return self._parse(data)
        except (struct.error, IndexError, ValueError, KeyError) as error:
            raise StreamError(f"PostgreSQL sent an invalid message of pgoutput: {error!r} in {data[:40]!r}.") from error

    def _parse(self, data: bytes) -> Message | None:
        kind = data[:1]
        if kind == b"I":
            relation = self._relation(data, 1)
            after, end = _row(data, _marked(data, 5, b"N"))
            _check_end(data, end)
            return Change("insert", relation, None, after)
        if kind == b"U":
            return self._update(data)
        if kind == b"D":
            relation = self._relation(data, 1)
            before, end = _row(data, _marked(data, 5, b"KO"))
            _check_end(data, end)
            return Change("delete", relation, before, None)
        if kind == b"B":
            commit_lsn, time_us, xid = _begin.unpack_from(data, 1)
            return Begin(commit_lsn, time_us + EPOCH_US, xid & 0xFFFFFFFF)
        if kind == b"C":
            _, end_lsn, _ = _commit.unpack_from(data, 1)
            return Commit(end_lsn)
        if kind == b"R":
            relation = _parse_relation(data)
            self._relations[relation.oid] = relation
            return None
        if kind == b"T":
            return self._truncate(data)
        if kind in (b"Y", b"O", b"M"):  # a type, an origin, a message of pg_logical_emit_message
            return None
        raise ValueError("unknown kind")

    def _update(self, data: bytes) -> Change:
        relation, before, at = self._relation(data, 1), None, 5
        if data[at : at + 1] in (b"K", b"O"):
            before, at = _row(data, at + 1)
        after, end = _row(data, _marked(data, at, b"N"))
        _check_end(data, end)
        return Change("update", relation, before, after)

    def _truncate(self, data: bytes) -> Truncate:
        count, options = _truncate.unpack_from(data, 1)
        if len(data) != 6 + 4 * count:
            raise ValueError("wrong length")
        relations = tuple(self._relation(data, 6 + 4 * number) for number in range(count))
        return Truncate(relations, bool(options & 1), bool(options & 2))

    def _relation(self, data: bytes, at: int) -> Relation:
        return self._relations[_int32.unpack_from(data, at)[0]]


def _parse_relation(data: bytes) -> Relation:
    (oid,) = _int32.unpack_from(data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    identity, count = _relation_end.unpack_from(data, at)
    at += _relation_end.size
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _text(data, at + 1)
        type_oid, _ = _column_end.unpack_from(data, at)
        at += _column_end.size
        columns.append(Column(column, type_oid & 0xFFFFFFFF, bool(flags & 1)))
    _check_end(data, at)
    return Relation(oid, schema or "pg_catalog", name, identity.decode("latin-1"), tuple(columns))


def _row(data: bytes, at: int) -> tuple[Row, int]:
    (count,) = _int16.unpack_from(data, at)
    at += 2
    values: list[Value] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t(ext)
            (size,) = _int32.unpack_from(data, at)
            at += 4 + size
            if at > len(data):
                raise ValueError("truncated value")
            values.append(data[at - size : at])
        elif kind == 0x6E:  # n(ull)
            values.append(None)
        elif kind == 0x75:  # u(nchanged)
            values.append(UNCHANGED)
        else:
            raise ValueError("unknown kind of value")
    return tuple(values), at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(errors="replace"), end + 1


def _marked(data: bytes, at: int, marks: bytes) -> int:
    if data[at] not in marks:
        raise ValueError("unknown kind of row")
    return at + 1


def _check_end(data: bytes, end: int) -> None:
    if end != len(data):
        raise ValueError("wrong length")
