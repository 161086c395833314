from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import StreamError
from headrace.sources.postgres.decoding.pgoutput import (
    EPOCH_US,
    UNCHANGED,
    Begin,
    Change,
    Column,
    Commit,
    Keepalive,
    Operation,
    Parser,
    Relation,
    Row,
    Truncate,
    Value,
    WalData,
    parse_frame,
    status_frame,
)

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
values: st.SearchStrategy[Value] = st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=40))


@st.composite
def relations(draw: st.DrawFn) -> Relation:
    columns = draw(st.lists(st.builds(Column, names, st.integers(0, 2**32 - 1), st.booleans()), max_size=6))
    return Relation(draw(st.integers(0, 2**32 - 1)), draw(names), draw(names), draw(st.sampled_from("dnfi")), tuple(columns))


def relation_message(relation: Relation) -> bytes:
    parts = [b"R", struct.pack("!I", relation.oid), relation.schema.encode(), b"\0", relation.name.encode(), b"\0"]
    parts += [relation.identity.encode(), struct.pack("!H", len(relation.columns))]
    for column in relation.columns:
        parts += [bytes([column.is_key]), column.name.encode(), b"\0", struct.pack("!Ii", column.type_oid, -1)]
    return b"".join(parts)


def row_bytes(row: Row) -> bytes:
    parts = [struct.pack("!H", len(row))]
    parts += [b"n" if value is None else b"u" if value is UNCHANGED else b"t" + struct.pack("!I", len(value)) + value for value in row]
    return b"".join(parts)


def change_message(change: Change) -> bytes:
    kind = {"insert": b"I", "update": b"U", "delete": b"D"}[change.operation]
    mark = b"O" if change.relation.identity == "f" else b"K"
    before = b"" if change.before is None else mark + row_bytes(change.before)
    after = b"" if change.after is None else b"N" + row_bytes(change.after)
    return kind + struct.pack("!I", change.relation.oid) + before + after


@st.composite
def changes(draw: st.DrawFn) -> Change:
    relation = draw(relations())
    rows = st.lists(values, min_size=len(relation.columns), max_size=len(relation.columns)).map(tuple)
    operations: list[Operation] = ["insert", "update", "delete"]
    operation = draw(st.sampled_from(operations))
    before = None if operation == "insert" else draw(rows if operation == "delete" else st.none() | rows)
    return Change(operation, relation, before, None if operation == "delete" else draw(rows))


@given(changes())
def test_a_change_is_parsed_with_its_table(change: Change) -> None:
    parser = Parser()
    assert parser.parse(relation_message(change.relation)) is None
    assert parser.parse(change_message(change)) == change


@given(changes(), st.data())
def test_a_truncated_message_is_an_error(change: Change, data: st.DataObject) -> None:
    parser = Parser()
    parser.parse(relation_message(change.relation))
    message = change_message(change)
    with pytest.raises(StreamError, match="invalid message"):
        parser.parse(message[: data.draw(st.integers(0, len(message) - 1))])


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_error_of_the_stream(data: bytes) -> None:
    parser = Parser()
    for parse in (parser.parse, parse_frame):
        with suppress(StreamError):
            parse(data)


def test_a_new_description_of_a_table_replaces_the_old_one() -> None:
    parser = Parser()
    old = Relation(7, "public", "orders", "d", (Column("id", 23, is_key=True),))
    new = old._replace(columns=(*old.columns, Column("note", 25, is_key=False)))
    parser.parse(relation_message(old))
    parser.parse(relation_message(new))
    assert parser.parse(change_message(Change("insert", new, None, (b"1", b"x")))) == Change("insert", new, None, (b"1", b"x"))


def test_a_change_of_a_table_that_was_not_described_is_an_error() -> None:
    relation = Relation(7, "public", "orders", "d", ())
    with pytest.raises(StreamError, match="invalid message"):
        Parser().parse(change_message(Change("insert", relation, None, ())))


def test_begin_commit_and_truncate_are_parsed() -> None:
    parser = Parser()
    assert parser.parse(b"B" + struct.pack("!Qqi", 100, 5, 9)) == Begin(100, EPOCH_US + 5, 9)
    assert parser.parse(b"C" + struct.pack("!BQQq", 0, 100, 148, 5)) == Commit(148)
    tables = [Relation(number, "public", f"t{number}", "d", ()) for number in (1, 2)]
    for table in tables:
        parser.parse(relation_message(table))
    assert parser.parse(b"T" + struct.pack("!IBII", 2, 3, 1, 2)) == Truncate(tuple(tables), cascade=True, restart_identity=True)
    assert parser.parse(b"Y" + struct.pack("!I", 1) + b"public\0mood\0") is None


@given(st.binary(min_size=1, max_size=40), st.integers(0, 2**64 - 1), st.booleans())
def test_frames_are_parsed(message: bytes, lsn: int, asks: bool) -> None:
    assert parse_frame(b"w" + struct.pack("!QQq", lsn, lsn, 0) + message) == WalData(message)
    assert parse_frame(b"k" + struct.pack("!QqB", lsn, 0, asks)) == Keepalive(lsn, asks)


def test_a_status_confirms_the_flushed_lsn_and_never_more_than_was_received() -> None:
    kind, received, flushed, applied, clock, asks = struct.unpack("!cQQQqB", status_frame(90, 50, EPOCH_US + 7, asks_reply=True))
    assert (kind, received, flushed, applied, clock, asks) == (b"r", 90, 50, 50, 7, 1)
