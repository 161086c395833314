"""What all tables share, and the database's own numbers. Times are microseconds since the epoch in UTC; JSON is stored as text."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, Text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite makes a table's row number out of an INTEGER key only; it holds 64 bits all the same. Each table whose ids the database gives has
# `sqlite_autoincrement`: SQLite would otherwise give the highest id again once its row is deleted. PostgreSQL's sequences never go back.
Number = BigInteger().with_variant(Integer(), "sqlite")

meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# How far the wall clock and the log were at which age of the database (headrace.store.db.ages).
age_marks = Table(
    "age_marks",
    metadata,
    Column("age", BigInteger, primary_key=True, autoincrement=False),
    Column("wall", BigInteger, nullable=False),
    Column("head", BigInteger, nullable=False),
)
