"""The metadata of all tables, and the database's own numbers.

Times are microseconds since the epoch in UTC. JSON is stored as text, except counters, which SQL adds up.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, Text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite makes a row number only out of an INTEGER key, which still has 64 bits. Each table with generated ids has
# `sqlite_autoincrement`. Otherwise SQLite reuses the highest id after its row is deleted. PostgreSQL's sequences
# never go back.
Number = BigInteger().with_variant(Integer(), "sqlite")

meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# The wall clock and the log's head at each recorded age of the database (headrace.store.db.ages).
age_marks = Table(
    "age_marks",
    metadata,
    Column("age", BigInteger, primary_key=True, autoincrement=False),
    Column("wall", BigInteger, nullable=False),
    Column("head", BigInteger, nullable=False),
)
