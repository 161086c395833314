"""The tables of connections and variables. Values are encrypted where they are kept; nobody but the keyring reads them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Table, Text

from headrace.store.tables import metadata

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
    Column("secret", Boolean, nullable=False),  # masked wherever people look
    Column("description", Text),
    Column("created", BigInteger, nullable=False),
    Column("updated", BigInteger, nullable=False),
)
