"""The JSON text, key and lane value of raw events from changed rows: rows of an outbox, changes, and Debezium's envelope. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from headrace.sources.postgres.decoding.pgoutput import UNCHANGED, Change, Relation, Row, Truncate
from headrace.sources.postgres.decoding.values import BYTEA_OID, JSON_OIDS, TEXT_OIDS, bytes_of, json_text, json_value
from headrace.sources.postgres.positions import lsn_text

Format: TypeAlias = Literal["outbox", "changes", "debezium"]
FORMATS: Final[tuple[Format, ...]] = ("outbox", "changes", "debezium")

UNAVAILABLE: Final = b'"__debezium_unavailable_value"'
"""What Debezium's connector sends for a large value that an update has not changed."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_encode: Final = msgspec.json.Encoder().encode
_DEBEZIUM_OPERATIONS: Final = {"insert": b"c", "update": b"u", "delete": b"d", "truncate": b"t"}


class TransactionInfo:
    """What all changes of a transaction have in common."""

    __slots__ = ("commit_lsn", "commit_lsn_text", "committed", "committed_us", "xid")

    def __init__(self, commit_lsn: int, committed_us: int, xid: int) -> None:
        self.commit_lsn = commit_lsn
        self.commit_lsn_text = lsn_text(commit_lsn).encode()
        self.committed_us = committed_us
        self.committed = (_EPOCH + timedelta(microseconds=committed_us)).isoformat().replace("+00:00", "Z").encode()
        self.xid = xid


class RawChange(NamedTuple):
    """The JSON text of a raw event, its key, and the value of the lane column."""

    data: bytes
    key: str | None = None
    lane: str | None = None


class Formatter(ABC):
    """Makes raw events of changes. `problems` names by table what a declaration and its table disagree about."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    @abstractmethod
    def change(self, change: Change, info: TransactionInfo) -> RawChange | None:
        """Return the raw event of a changed row, or None if it is not of interest."""

    def truncate(self, relation: Relation, truncate: Truncate, info: TransactionInfo) -> RawChange | None:
        """Return the raw event of a truncated table, or None if it is not of interest."""
        del relation, truncate, info
        return None


class OutboxFormatter(Formatter):
    """Inserted rows: the value of the column `payload`, or the whole row. Other changes are not of interest.

    A row without a declared column becomes text that is not JSON, so that it becomes a dead letter with all its values.
    """

    def __init__(self, payload: str | None, key: str | None, lane: str | None) -> None:
        super().__init__()
        self._names = payload, key, lane
        self._relation: Relation | None = None
        self._columns: tuple[int | None, int | None, int | None] = None, None, None

    def change(self, change: Change, info: TransactionInfo) -> RawChange | None:
        """Return the raw event of an inserted row."""
        del info
        row, relation = change.after, change.relation
        if change.operation != "insert" or row is None:
            return None
        if relation is not self._relation:
            self._find_columns(relation)
        payload, key, lane = self._columns
        if relation.qualified_name in self.problems:
            data = self.problems[relation.qualified_name].encode() + b" " + row_json(relation, row)
        elif payload is None:
            data = row_json(relation, row)
        else:
            data = _payload(_value(row, payload), relation.columns[payload].type_oid)
        return RawChange(data, _column_text(row, key), _column_text(row, lane))

    def _find_columns(self, relation: Relation) -> None:
        numbers = {column.name: number for number, column in enumerate(relation.columns)}
        missing = [name for name in self._names if name is not None and name not in numbers]
        if missing:
            self.problems[relation.qualified_name] = f"Table {relation.qualified_name} has no column {', '.join(map(repr, missing))}."
        else:
            self.problems.pop(relation.qualified_name, None)
        payload, key, lane = (None if name is None else numbers.get(name) for name in self._names)
        self._columns = payload, key, lane
        self._relation = relation


class ChangesFormatter(Formatter):
    """Inserted, updated and deleted rows, and truncated tables, as objects with the fields `op`, `table`, `key`, `before` and `after`."""

    def change(self, change: Change, info: TransactionInfo) -> RawChange:
        """Return the raw event of a changed row."""
        relation = change.relation
        after, unchanged = _completed(change)
        key = _key_columns(relation)
        key_row = change.after if change.after is not None else change.before
        parts = [
            b'{"op":"%b","table":%b' % (change.operation.encode(), _encode(relation.qualified_name)),
            b'"key":' + (_object(relation, key_row, key) if key and key_row is not None else b"null"),
            b'"before":' + _before(change),
            b'"after":' + (b"null" if after is None else row_json(relation, after)),
        ]
        if unchanged:
            parts.append(b'"unchanged":' + _encode(unchanged))
        parts.append(_origin(info))
        return RawChange(b",".join(parts), _key_text(relation, key, key_row))

    def truncate(self, relation: Relation, truncate: Truncate, info: TransactionInfo) -> RawChange:
        """Return the raw event of a truncated table."""
        flags = _encode({"cascade": truncate.cascade, "restart_identity": truncate.restart_identity})[1:-1]
        table = _encode(relation.qualified_name)
        return RawChange(
            b'{"op":"truncate","table":%b,"key":null,"before":null,"after":null,%b,%b' % (table, flags, _origin(info)), None, None
        )


class DebeziumFormatter(Formatter):
    """The same changes in the envelope of Debezium's connector for PostgreSQL, without the schema. `name` is its logical name."""

    def __init__(self, name: str, database: str) -> None:
        super().__init__()
        self._source = _encode({"version": "headrace", "connector": "postgresql", "name": name, "snapshot": "false", "db": database})[:-1]

    def change(self, change: Change, info: TransactionInfo) -> RawChange:
        """Return the raw event of a changed row. Its key is an object of the key columns."""
        relation = change.relation
        after, _ = _completed(change)
        key = _key_columns(relation)
        key_row = change.after if change.after is not None else change.before
        after_json = b"null" if after is None else _object(relation, after, range(len(after)), unchanged=UNAVAILABLE)
        data = self._envelope(relation, _before(change), after_json, _DEBEZIUM_OPERATIONS[change.operation], info)
        return RawChange(data, _object(relation, key_row, key).decode(errors="replace") if key and key_row is not None else None)

    def truncate(self, relation: Relation, truncate: Truncate, info: TransactionInfo) -> RawChange:
        """Return the raw event of a truncated table."""
        del truncate
        return RawChange(self._envelope(relation, b"null", b"null", _DEBEZIUM_OPERATIONS["truncate"], info))

    def _envelope(self, relation: Relation, before: bytes, after: bytes, operation: bytes, info: TransactionInfo) -> bytes:
        ms = info.committed_us // 1_000
        source = b'%b,"ts_ms":%d,"schema":%b,"table":%b,"txId":%d,"lsn":%d}' % (
            self._source,
            ms,
            _encode(relation.schema),
            _encode(relation.name),
            info.xid,
            info.commit_lsn,
        )
        return b'{"before":%b,"after":%b,"source":%b,"op":"%b","ts_ms":%d,"transaction":null}' % (before, after, source, operation, ms)


def row_json(relation: Relation, row: Row) -> bytes:
    """Return a row as a JSON object, without the values that are unchanged."""
    return _object(relation, row, range(len(row)))


def _object(relation: Relation, row: Row, numbers: Iterable[int], unchanged: bytes | None = None) -> bytes:
    fields = []
    for number in numbers:
        column, value = relation.columns[number], row[number]
        if value is UNCHANGED:
            if unchanged is None:
                continue
            text = unchanged
        else:
            text = json_value(value, column.type_oid)
        fields.append(_encode(column.name) + b":" + text)
    return b"{" + b",".join(fields) + b"}"


def _completed(change: Change) -> tuple[Row | None, list[str]]:
    """Return the new row, with unchanged values from a full old row, and the columns whose values are still unknown."""
    after, before, relation = change.after, change.before, change.relation
    if after is None or UNCHANGED not in after:
        return after, []
    if before is not None and relation.identity == "f":
        after = tuple(old if new is UNCHANGED else new for old, new in zip(before, after, strict=True))
    return after, [column.name for column, value in zip(relation.columns, after, strict=True) if value is UNCHANGED]


def _before(change: Change) -> bytes:
    if change.before is None:
        return b"null"
    relation = change.relation
    return row_json(relation, change.before) if relation.identity == "f" else _object(relation, change.before, _key_columns(relation))


def _key_columns(relation: Relation) -> list[int]:
    """Return the numbers of the key columns. With a full replica identity all columns count as key, so that there is none."""
    if relation.identity == "f":
        return []
    return [number for number, column in enumerate(relation.columns) if column.is_key]


def _key_text(relation: Relation, numbers: list[int], row: Row | None) -> str | None:
    """Return the value of the only key column as text, or the JSON of several."""
    if not numbers or row is None:
        return None
    if len(numbers) == 1:
        return _column_text(row, numbers[0])
    return _object(relation, row, numbers).decode(errors="replace")


def _column_text(row: Row, number: int | None) -> str | None:
    value = None if number is None else _value(row, number)
    return None if value is None else value.decode(errors="replace")


def _value(row: Row, number: int) -> bytes | None:
    value = row[number]
    return None if value is UNCHANGED else value


def _payload(value: bytes | None, type_oid: int) -> bytes:
    """Return a payload: JSON, text and bytes as they are, values of other types as JSON."""
    if value is None:
        return b"null"
    if type_oid in JSON_OIDS or type_oid in TEXT_OIDS:
        return value
    if type_oid == BYTEA_OID:
        return bytes_of(value)
    return json_value(value, type_oid)


def _origin(info: TransactionInfo) -> bytes:
    return b'"committed":%b,"lsn":"%b","xid":%d}' % (json_text(info.committed), info.commit_lsn_text, info.xid)
