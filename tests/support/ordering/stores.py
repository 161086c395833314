"""The homes of the ordering as the contract's suite and the soak use them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from headrace.core.identity import event_key
from headrace.core.ordering.causal_order import Offered
from headrace.core.ordering.delivery import DeliveryPolicy
from headrace.pipeline.kernel.kernel import Kernel
from headrace.store.db.database import Database
from headrace.store.ordering.scopes import scope_named
from headrace.store.ordering.sql_store import SqlOrdering
from headrace.store.tables.base import metadata
from headrace.store.tables.ordering import ORDERING_TABLES, ordering_given_up
from support.ordering.events import SOURCE, Event, Handled
from support.ordering.kernel import apply, batch
from support.processes.store import database_url

T = TypeVar("T")


class Planned:
    """A database on PostgreSQL whose transactions are planned without one kind of scan."""

    def __init__(self, database: Database, without: str) -> None:
        self.reading = database.reading
        self._database = database
        self._without = without

    def write(self, work: Callable[[Any], T]) -> T:
        def planned(connection: Connection) -> T:
            connection.exec_driver_sql(f"SET LOCAL {self._without} = off")
            return work(connection)

        return self._database.write(planned)


class SqlScopes:
    """A database of each kind that returns a new scope for each request; opened at the first request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._databases: dict[str, Database] = {}
        self._names = (f"scope-{n}" for n in count())

    def home(self, kind: str, policy: DeliveryPolicy, lookback: int, *, by_age: bool = True) -> SqlOrdering:
        database = self._databases.get(kind)
        if database is None:
            database = self._databases[kind] = Database(database_url(kind, self._folder))
            database.write(lambda connection: metadata.create_all(connection, tables=ORDERING_TABLES))
        name = next(self._names)
        scope = database.write(lambda connection: scope_named(connection, name, lookback))
        return SqlOrdering(database, scope, policy=policy, by_age=by_age)

    def copy_of(self, kind: str, home: SqlOrdering, *, without: str | None = None) -> SqlOrdering:
        """Return another process's home of the same scope; with `without`, that setting of PostgreSQL's planner is off."""
        database = self._databases[kind]
        return SqlOrdering(Planned(database, without) if without else database, home.scope_id, policy=home.policy)

    def given_up(self, kind: str, home: SqlOrdering) -> set[bytes]:
        """Return the keys of the leaders that the database has recorded as given up."""
        with self._databases[kind].reading() as connection:
            found = connection.execute(select(ordering_given_up.c.key).where(ordering_given_up.c.scope_id == home.scope_id))
            return {bytes(key) for key in found.scalars()}

    def close(self) -> None:
        for database in self._databases.values():
            database.close()


class Stamped:
    """What the log does before the kernel sees an event: it drops known ids, and says which leaders came before."""

    def __init__(self) -> None:
        self.seqs: dict[str, int] = {}
        self.ids: dict[int, str] = {}

    def take(self, events: list[Event]) -> list[tuple[Event, Offered]]:
        out = []
        for event in events:
            if event.id in self.seqs:
                continue
            seq = self.seqs[event.id] = len(self.seqs) + 1
            self.ids[seq] = event.id
            leader = None if event.leader is None else bytes(event_key(SOURCE, event.leader))
            stamp = -1 if event.leader is None else self.seqs.get(event.leader, -1)
            out.append((event, (seq, bytes(event_key(SOURCE, event.id)), leader, stamp, event.occurred, event.id)))
        return out


class KernelHome:
    """The vectorised kernel, its state written down and read again after each step, as the pipeline's driver does for each batch."""

    def __init__(self, lookback: int) -> None:
        self._log = Stamped()
        self._lookback = lookback
        self._kernel = Kernel(lookback)
        self._stored: dict[str, bytes] = {}

    def step(self, events: list[Event], now: int) -> list[Handled]:
        first = self._kernel.position + 1
        step = self._kernel.step(batch([offered for _, offered in self._log.take(events)]), now)
        apply(self._kernel.changes(), self._stored)
        self._kernel = Kernel.restore(self._stored, self._lookback)
        told = zip(step.seqs.tolist(), step.mark_column().to_pylist(), strict=True)
        return [Handled(self._log.ids[seq], mark, position) for position, (seq, mark) in enumerate(told, first)]

    def waiting(self) -> set[str]:
        return set(self._kernel.waiting.id.to_pylist())
