"""Columns of the initial schema, several of one kind at a time. Without `null` a column takes no NULL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite numbers rows by an INTEGER key only


def text(*names: str, null: bool = False, default: str | None = None) -> Iterator[sa.Column[Any]]:
    """Yield columns of text."""
    return _columns(sa.Text(), names, null=null, default=default)


def bigint(*names: str, null: bool = False, default: str | None = None) -> Iterator[sa.Column[Any]]:
    """Yield columns of integers of 64 bits."""
    return _columns(sa.BigInteger(), names, null=null, default=default)


def json(*names: str) -> Iterator[sa.Column[Any]]:
    """Yield columns of JSON that SQL reads."""
    return _columns(sa.JSON().with_variant(JSONB(), "postgresql"), names)


def boolean(*names: str) -> Iterator[sa.Column[Any]]:
    """Yield columns of truth values."""
    return _columns(sa.Boolean(), names)


def blob(*names: str, null: bool = False) -> Iterator[sa.Column[Any]]:
    """Yield columns of bytes."""
    return _columns(sa.LargeBinary(), names, null=null)


def serial(name: str) -> sa.Column[Any]:
    """Return the primary key whose values the database assigns."""
    return sa.Column(name, _INTEGER, nullable=False)


def row_number(name: str) -> sa.Column[Any]:
    """Return the integer primary key whose values the store assigns."""
    return sa.Column(name, _INTEGER, autoincrement=False, nullable=False)


def create_partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    """Create an index of the rows that meet the condition `where`."""
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _columns(kind: Any, names: tuple[str, ...], *, null: bool = False, default: str | None = None) -> Iterator[sa.Column[Any]]:
    for name in names:
        yield sa.Column(name, kind, autoincrement=False, nullable=null, server_default=default)
