"""The tables of connections and variables with encrypted values, and of issued tokens. The tokens themselves are not stored."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Table, Text

from headrace.store.tables.base import metadata

connections = Table(
    "connections",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("value", Text, nullable=False),  # encrypted JSON
    Column("description", Text),
    Column("created", BigInteger, nullable=False),
    Column("updated", BigInteger, nullable=False),
)

variables = Table(
    "variables",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),  # encrypted text
    Column("secret", Boolean, nullable=False),  # masked in all output
    Column("description", Text),
    Column("created", BigInteger, nullable=False),
    Column("updated", BigInteger, nullable=False),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("revoked", BigInteger),  # time of the revocation
)
