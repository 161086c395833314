"""The tokens that people were given, until they expire: whose they are, and which were taken back. The tokens themselves are not kept."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, delete, insert, select, update

from headrace.core.values.moments import moment
from headrace.store.db.database import Database
from headrace.store.tables.secrets import api_tokens
from headrace.wire.secrets import MakeToken, ShownToken

SECOND = 1_000_000
ID_BYTES = 6


class ApiTokens:
    """The tokens of the people of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, asked: MakeToken) -> ShownToken:
        """Record a new token and return its claims; delete expired tokens."""
        made = self._database.now()
        expires = made // SECOND * SECOND + asked.seconds * SECOND
        row = {"id": secrets.token_hex(ID_BYTES), "name": asked.name, "scope": asked.scope, "made": made, "expires": expires}

        def work(connection: Connection) -> None:
            connection.execute(delete(api_tokens).where(api_tokens.c.expires <= made))
            connection.execute(insert(api_tokens).values(**row))

        self._database.write(work)
        return ShownToken.model_validate(row | {"made": moment(made), "expires": moment(expires)})

    def listed(self) -> list[ShownToken]:
        """Return the tokens that have not expired, those made last first."""
        query = select(api_tokens).where(api_tokens.c.expires > self._database.now())
        with self._database.reading() as connection:
            found = connection.execute(query.order_by(api_tokens.c.made.desc(), api_tokens.c.id)).all()
        return [
            ShownToken(
                id=row.id,
                name=row.name,
                scope=row.scope,
                made=moment(row.made),
                expires=moment(row.expires),
                revoked=None if row.revoked is None else moment(row.revoked),
            )
            for row in found
        ]

    def revoke(self, id: str) -> bool:
        """Take a token back; say whether there is one. The first time counts."""
        now = self._database.now()
        there = select(api_tokens.c.id).where(api_tokens.c.id == id)
        first = update(api_tokens).where(api_tokens.c.id == id, api_tokens.c.revoked.is_(None)).values(revoked=now)

        def work(connection: Connection) -> bool:
            connection.execute(first)
            return connection.execute(there).first() is not None

        return self._database.write(work)

    def revoked(self) -> frozenset[str]:
        """Return the ids of those that were taken back and have not expired."""
        gone = (api_tokens.c.revoked.is_not(None), api_tokens.c.expires > self._database.now())
        with self._database.reading() as connection:
            return frozenset(connection.execute(select(api_tokens.c.id).where(*gone)).scalars())
