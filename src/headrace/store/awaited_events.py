"""Events of the log that task runs wait for, in causal order: a scope of its own reads the log while any run waits.

The law: a run gets each event at most once, and each after the one it follows. What counts is what came into the log after the run was
made, so that an answer that is quicker than the run's `defer` is not missed: what the scope has handled by then is looked for in the log.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from secrets import randbits
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, exists, insert, select, update

from headrace.core import deferral
from headrace.core.deferral import Deferral
from headrace.core.handling import Claim, HandlingPolicy
from headrace.store.bell import Bell
from headrace.store.cloud_event import cloud_event
from headrace.store.database import Database
from headrace.store.deferred_rows import Held, read, save
from headrace.store.deferred_tables import awaited_events, run_events
from headrace.store.log_feed import LOOKBACK, feed
from headrace.store.ordering import SqlOrdering
from headrace.store.ordering_scopes import forget_rows, scope_named
from headrace.store.ordering_tables import ordering_events, ordering_scopes
from headrace.store.tables import events, firings, triggers
from headrace.wire.deferred import AwaitedEvent

SCOPE: Final = "task-runs"
CLAIM: Final = 500
_LEASE: Final = 30_000_000
_CANDIDATES: Final = 500


class Wait:
    """A run that waits: for what, and after which event of the log."""

    def __init__(self, run_id: str, project: str, asked: AwaitedEvent, head: int) -> None:
        self.run_id = run_id
        self.project = project
        self.head = head
        self.on = asked.on
        self.fields = asked.model_dump(exclude={"on"}, exclude_none=True)

    def wants(self, event: Any, names: Iterable[str]) -> bool:
        """Whether it is the event, on which the triggers of its project of these names fired."""
        if event.seq <= self.head or any(getattr(event, name) != value for name, value in self.fields.items()):
            return False
        return any(fnmatchcase(name, glob) for name in names for glob in self.on)


class Waits:
    """The runs that wait, found by a field that they ask for: an event looks at few of them, however many there are."""

    def __init__(self, waits: Iterable[Wait]) -> None:
        self._by_field: dict[tuple[str, str] | None, dict[str, Wait]] = {}
        for wait in waits:
            self._by_field.setdefault(next(iter(wait.fields.items()), None), {})[wait.run_id] = wait

    def take(self, event: Any, fired: Mapping[tuple[int, str], Sequence[str]], had: Container[tuple[str, int]]) -> list[Wait]:
        """Return those that wait for the event and have not had it; they then wait no longer."""
        found: list[Wait] = []
        for key in (None, ("id", event.id), ("subject", event.subject), ("type", event.type)):
            waits = self._by_field.get(key, {})
            wanting = [wait for wait in waits.values() if wait.wants(event, fired.get((event.seq, wait.project), ()))]
            new = [wait for wait in wanting if (wait.run_id, event.seq) not in had]
            for wait in new:
                del waits[wait.run_id]
            found += new
        return found


class Taken(NamedTuple):
    """What a turn of the scope gave: whether it read anything, and the events to hand on."""

    read: bool
    claims: list[Claim]


class AwaitedEvents:
    """What hands events to the task runs of one database. `bell` is theirs: it rings when one begins to wait, or may go on."""

    def __init__(self, database: Database, bell: Bell) -> None:
        self._database = database
        self._bell = bell
        self._home: SqlOrdering | None = None

    def take(self) -> Taken | None:
        """Read on in the log and claim what has its turn; None where no run waits."""
        home = self._scope()
        if home is None:
            return None
        read_on = feed(self._database, home, lambda _: False)
        now = self._database.now()
        due = home.next_due()
        if due is None or due > now:
            return Taken(read_on, [])
        home.expire(now)
        return Taken(read_on, home.claim(CLAIM, now))

    def hand(self, claims: Sequence[Claim]) -> int:
        """Let the runs that wait for these events go on, in the order of the claims, and settle them; return how many do."""
        home = self._home
        if home is None:
            return 0

        def work(connection: Connection) -> int:
            mine = _still_claimed(connection, home.scope_id, claims)
            rows = {row.seq: row for row in connection.execute(select(events).where(events.c.seq.in_([claim.seq for claim in mine])))}
            fired, had = _names(connection, rows), _had(connection, rows)
            waits = Waits(_waits(connection))
            told = [(wait.run_id, rows[claim.seq], claim.mark) for claim in mine for wait in waits.take(rows[claim.seq], fired, had)]
            count = sum(_fire(self._database, connection, run_id, row, mark) for run_id, row, mark in told)
            if count:
                self._bell.mark(connection)
            return count

        count = self._database.write(work)
        home.settle(claims, self._database.now())
        return count

    def _scope(self) -> SqlOrdering | None:
        """Return the scope, if a run waits."""
        waits = select(exists(select(awaited_events.c.run_id)))
        with self._database.reading() as connection:
            if not connection.execute(waits).scalar_one():
                return None
            found = connection.execute(select(ordering_scopes.c.id).where(ordering_scopes.c.name == SCOPE)).scalar_one()
        if self._home is None or self._home.scope_id != found:
            self._home = SqlOrdering(self._database, found, policy=HandlingPolicy(lease=_LEASE), by_age=False, logged=True)
        return self._home


def await_event(connection: Connection, held: Held, after: Deferral, asked: AwaitedEvent) -> Deferral:
    """Let a run, which is now as in `after`, wait for an event. Return how it is then: it goes on at once with one that came already."""
    scope = _begin(connection, held.head)
    found = _came_already(connection, scope, Wait(held.run_id, held.project, asked, held.head))
    if found is not None:
        return _fired(connection, held.run_id, after, found, None)
    values = {"run_id": held.run_id, "project": held.project, "event": asked.model_dump_json(exclude_none=True), "head": held.head}
    connection.execute(insert(awaited_events).values(**values))
    return after


def _begin(connection: Connection, head: int) -> int:
    """Return the scope. It has not read on while no run waited: if it is not where the run begins yet, it begins anew there."""
    scope = scope_named(connection, SCOPE, LOOKBACK, head=head)
    nobody = ~exists(select(awaited_events.c.run_id))
    behind = update(ordering_scopes).where(ordering_scopes.c.id == scope, ordering_scopes.c.head < head, nobody)
    if connection.execute(behind.values(head=head, version=randbits(40))).rowcount:
        forget_rows(connection, scope)
    return scope


def _came_already(connection: Connection, scope: int, wait: Wait) -> Row[Any] | None:
    """Return the first of the events that the scope is past and that the run waits for: one that follows none of the others."""
    read_to = select(ordering_scopes.c.head).where(ordering_scopes.c.id == scope).scalar_subquery()
    open_ = exists().where(ordering_events.c.scope_id == scope, ordering_events.c.seq == events.c.seq)
    had = exists().where(run_events.c.run_id == wait.run_id, run_events.c.seq == events.c.seq)
    asked = [events.c[name] == value for name, value in wait.fields.items()]
    query = select(events).where(events.c.seq > wait.head, events.c.seq <= read_to, ~open_, ~had, *asked)
    rows = connection.execute(query.order_by(events.c.seq).limit(_CANDIDATES)).all()
    fired = _names(connection, {row.seq: row for row in rows})
    fit = {row.key: row for row in rows if wait.wants(row, fired.get((row.seq, wait.project), ()))}
    if not fit:
        return None
    first = next(iter(fit.values()))
    above = {first.key}
    while first.leader_key in fit and first.leader_key not in above:
        first = fit[first.leader_key]
        above.add(first.key)
    return first


def _fire(database: Database, connection: Connection, run_id: str, row: Any, mark: str | None) -> bool:
    held = read(connection, [run_id]).get(run_id)
    if held is None or held.run.state != "deferred":
        return False
    save(connection, held, _fired(connection, run_id, held.run, row, mark), database.now())
    return True


def _fired(connection: Connection, run_id: str, run: Deferral, row: Any, mark: str | None) -> Deferral:
    connection.execute(insert(run_events).values(run_id=run_id, seq=row.seq))
    return deferral.fire(run, row.type, cloud_event(row, mark).decode())


def _waits(connection: Connection) -> Iterator[Wait]:
    for row in connection.execute(select(awaited_events).order_by(awaited_events.c.run_id)):
        yield Wait(row.run_id, row.project, AwaitedEvent.model_validate_json(row.event), row.head)


def _names(connection: Connection, seqs: Iterable[int]) -> dict[tuple[int, str], list[str]]:
    """Return the names of the triggers that fired on each event, by its seq and their project."""
    query = select(firings.c.seq, triggers.c.project, triggers.c.name).join(triggers, triggers.c.id == firings.c.trigger_id)
    named: dict[tuple[int, str], list[str]] = {}
    for row in connection.execute(query.where(firings.c.seq.in_(list(seqs)))):
        named.setdefault((row.seq, row.project), []).append(row.name)
    return named


def _had(connection: Connection, seqs: Iterable[int]) -> set[tuple[str, int]]:
    """Return which runs have had which of these events."""
    query = select(run_events.c.run_id, run_events.c.seq).where(run_events.c.seq.in_(list(seqs)))
    return {(row.run_id, row.seq) for row in connection.execute(query)}


def _still_claimed(connection: Connection, scope: int, claims: Sequence[Claim]) -> list[Claim]:
    """Return those of the claims that nobody else has had since: what another handed on first would be out of order here."""
    query = select(ordering_events.c.seq, ordering_events.c.claim).where(ordering_events.c.scope_id == scope)
    held = {row.seq: row.claim for row in connection.execute(query.where(ordering_events.c.seq.in_([claim.seq for claim in claims])))}
    return [claim for claim in claims if held.get(claim.seq) == claim.token]
