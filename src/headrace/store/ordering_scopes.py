"""Where scopes of the ordering are: among other things in an api's database, or alone in a database of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from secrets import randbits

from sqlalchemy import Connection, delete, insert, select, update
from typing_extensions import override

from headrace.core.handling import HandlingPolicy
from headrace.store.database import Database
from headrace.store.ordering import SqlOrdering
from headrace.store.ordering_tables import ORDERING_TABLES, ordering_scopes
from headrace.store.tables import metadata

_ZEROES = ("clock", "head", "position", "lost", "late", "cycles", "handled", "held")


def scope_named(connection: Connection, name: str, lookback: int, *, head: int = 0) -> int:
    """Return the id of a scope, made if there is none; `head` is how far in the log a new one has read. The last lookback given counts."""
    found: int | None = connection.execute(select(ordering_scopes.c.id).where(ordering_scopes.c.name == name)).scalar_one_or_none()
    if found is None:
        # not from 0: nobody must take it for one that had its id before
        given = dict.fromkeys(_ZEROES, 0) | {"version": randbits(40), "name": name, "lookback": lookback, "head": head}
        return int(connection.execute(insert(ordering_scopes).values(**given).returning(ordering_scopes.c.id)).scalar_one())
    connection.execute(update(ordering_scopes).where(ordering_scopes.c.id == found).values(lookback=lookback))
    return found


def forget_rows(connection: Connection, scope_id: int) -> None:
    """Forget all that a scope holds, but for the scope itself."""
    for table in ORDERING_TABLES:
        if table is not ordering_scopes:
            connection.execute(delete(table).where(table.c.scope_id == scope_id))


class OwnOrdering(SqlOrdering):
    """A scope in a database that holds nothing but orderings; its tables are made on first use. Close it when done."""

    def __init__(self, url: str, scope: str, lookback: int, *, policy: HandlingPolicy | None = None, by_age: bool = True) -> None:
        """Open it.

        Raises:
            SettingsError: The URL is none that Headrace understands.
            ResourceError: The database cannot be opened or written.
        """
        self._own = Database(url)

        def prepare(connection: Connection) -> int:
            metadata.create_all(connection, tables=ORDERING_TABLES)
            return scope_named(connection, scope, lookback)

        try:
            super().__init__(self._own, self._own.write(prepare), policy=policy, by_age=by_age)
        except BaseException:
            self._own.close()
            raise

    @override
    def close(self) -> None:
        self._own.close()

    @property
    def clock(self) -> Callable[[], int]:
        """The clock that all processes on this database go by, in µs since the epoch."""
        return self._own.now
