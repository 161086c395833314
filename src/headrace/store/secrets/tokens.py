"""Issued tokens until they expire: owner, expiry and revocation. The tokens themselves are not stored."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from headrace.core.values.moments import moment
from headrace.store.db.database import Database
from headrace.store.tables.secrets import api_tokens
from headrace.wire.secrets import CreateToken, TokenSummary

SECOND = 1_000_000
ID_BYTES = 6


class ApiTokens:
    """The issued tokens of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, request: CreateToken) -> TokenSummary:
        """Record a new token and return its claims; delete expired tokens."""
        created = self._database.now()
        expires = created // SECOND * SECOND + request.seconds * SECOND
        row = {
            "id": secrets.token_hex(ID_BYTES),
            "name": request.name,
            "scope": request.scope,
            "created": created,
            "expires": expires,
            "revoked": None,
        }

        def work(connection: Connection) -> None:
            connection.execute(delete(api_tokens).where(api_tokens.c.expires <= created))
            connection.execute(insert(api_tokens).values(**row))

        self._database.write(work)
        return _summary(row)

    def listed(self) -> list[TokenSummary]:
        """Return the tokens that have not expired, the newest first."""
        query = select(api_tokens).where(api_tokens.c.expires > self._database.now())
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(api_tokens.c.created.desc(), api_tokens.c.id)).mappings().all()
        return [_summary(row) for row in rows]

    def revoke(self, id: str) -> bool:
        """Revoke a token; return whether it exists. The first revocation counts."""
        now = self._database.now()
        there = select(api_tokens.c.id).where(api_tokens.c.id == id)
        first = update(api_tokens).where(api_tokens.c.id == id, api_tokens.c.revoked.is_(None)).values(revoked=now)

        def work(connection: Connection) -> bool:
            connection.execute(first)
            return connection.execute(there).first() is not None

        return self._database.write(work)

    def revoked(self) -> frozenset[str]:
        """Return the ids of revoked tokens that have not expired."""
        conditions = (api_tokens.c.revoked.is_not(None), api_tokens.c.expires > self._database.now())
        with self._database.reading() as connection:
            return frozenset(connection.execute(select(api_tokens.c.id).where(*conditions)).scalars())


def _summary(row: Mapping[Any, Any]) -> TokenSummary:
    revoked = row["revoked"]
    return TokenSummary(
        id=row["id"],
        name=row["name"],
        scope=row["scope"],
        created=moment(row["created"]),
        expires=moment(row["expires"]),
        revoked=None if revoked is None else moment(revoked),
    )
