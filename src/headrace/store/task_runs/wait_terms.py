"""Find the runs that may wait for an event by an index on what they wait for: cost follows matches, not waiting runs.

Each wait has one kind of term, the most selective that it names: `id`, `subject`, `name` (a trigger's, in full), `type` or `prefix` (what
a pattern of triggers' names begins with). A term is necessary and not sufficient: a wait that is found by it is compared in full.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select

from headrace.store.dialects.statements import LITTLE_BY_LITTLE, in_list
from headrace.store.ordering.statements import slices
from headrace.store.tables.task_runs import event_wait_terms, event_waits
from headrace.wire.task_runs import AwaitedEvent

Fired = Mapping[tuple[int, str], Sequence[str]]
"""The names of the triggers that fired on each event, by its seq and their project."""

_FIELDS: Final = ("id", "subject", "type")
_T = event_wait_terms.c
_kinds = select(_T.kind).distinct()
_first = (
    select(_T.number)
    .where(_T.kind == bindparam("kind"), in_list(_T.term, "terms"), _T.number > bindparam("after"))
    .order_by(_T.number)
    .limit(bindparam("most"))
)
_waits = select(event_waits).where(in_list(event_waits.c.number, "numbers")).order_by(event_waits.c.number)

MAX_PATTERNS: Final = 2_000
"""Patterns of triggers' names that one transaction compares with names; the first wait's are compared in any case."""
_WILDCARD = re.compile(r"[*?\[]")
_WILDCARD_OR_END = re.compile(r"[*?\[\]]")


class Wait:
    """A run that waits: for what, and after which event of the log. `number` is that of the wait, once it has one."""

    def __init__(self, run_id: str, project: str, asked: AwaitedEvent, head: int, number: int = 0) -> None:
        self.number = number
        self.run_id = run_id
        self.project = project
        self.head = head
        self.terms = terms_of(project, asked)
        self.on = [(pattern, _start(pattern), _WILDCARD_OR_END.split(pattern)[-1]) for pattern in asked.on]
        self._matches: dict[str, bool] = {}
        self.fields = asked.model_dump(exclude={"on"}, exclude_none=True)

    def wants(self, event: Any, names: Iterable[str]) -> bool:
        """Whether it is the event, on which the triggers of its project of these names fired."""
        if event.seq <= self.head or any(getattr(event, name) != value for name, value in self.fields.items()):
            return False
        return any(self._on(name) for name in names)

    def _on(self, name: str) -> bool:
        """Whether a pattern matches the name. The literal start and end are compared first: most patterns are not even compiled."""
        known = self._matches.get(name)
        if known is None:
            known = any(name.startswith(start) and name.endswith(end) and fnmatchcase(name, pattern) for pattern, start, end in self.on)
            self._matches[name] = known
        return known


class WaitIndex:
    """Some of the runs that wait, found by their terms: an event looks at few of them, however many there are."""

    def __init__(self, waits: Iterable[Wait], fired: Fired) -> None:
        self._fired = fired
        self._names: dict[int, set[tuple[str, str]]] = {}
        for (seq, project), names in fired.items():
            self._names.setdefault(seq, set()).update((project, name) for name in names)
        self._by_term: dict[tuple[str, str], dict[str, Wait]] = {}
        for wait in waits:
            kind, terms = wait.terms
            for term in terms:
                self._by_term.setdefault((kind, term), {})[wait.run_id] = wait
        self._prefixes: dict[tuple[str, str], list[str]] = {}

    def find(self, event: Any, had: Container[tuple[str, int]]) -> list[Wait]:
        """Return those that wait for the event and whose runs have not had it, in the order in which they began to wait."""
        found = (wait for wait in self._wanting(event) if (wait.run_id, event.seq) not in had)
        return sorted(found, key=lambda wait: wait.number)

    def remove(self, wait: Wait) -> None:
        """Remove the wait of a run."""
        kind, terms = wait.terms
        for term in terms:
            del self._by_term[kind, term][wait.run_id]

    def have(self, event: Any) -> bool:
        """Whether one of them waits for the event."""
        return next(iter(self._wanting(event)), None) is not None

    def _wanting(self, event: Any) -> Iterable[Wait]:
        names = self._names.get(event.seq, ())
        keys = [(kind, getattr(event, kind)) for kind in _FIELDS]
        for project, name in names:
            keys.append(("name", f"{project}/{name}"))
            keys += [("prefix", prefix) for prefix in self._prefixes_of(project, name)]
        several = {run_id: wait for key in keys for run_id, wait in self._by_term.get(key, {}).items()}
        return (wait for wait in several.values() if wait.wants(event, self._fired.get((event.seq, wait.project), ())))

    def _prefixes_of(self, project: str, name: str) -> list[str]:
        found = self._prefixes.get((project, name))
        if found is None:
            found = [prefix for prefix in prefixes(project, name) if ("prefix", prefix) in self._by_term]
            self._prefixes[project, name] = found
        return found


def terms_of(project: str, asked: AwaitedEvent) -> tuple[str, list[str]]:
    """Return the kind of a wait's terms, and the terms."""
    for kind in ("id", "subject"):
        value = getattr(asked, kind)
        if value is not None:
            return kind, [value]
    named = [f"{project}/{pattern}" for pattern in dict.fromkeys(asked.on)]
    if not any(mark in pattern for pattern in asked.on for mark in "*?["):
        return "name", named
    if asked.type is not None:
        return "type", [asked.type]
    return "prefix", list(dict.fromkeys(f"{project}/{_start(pattern)}" for pattern in asked.on))


def prefixes(project: str, name: str) -> list[str]:
    """Return the terms of kind `prefix` by which a trigger's name is found."""
    return [f"{project}/{name[:length]}" for length in range(len(name) + 1)]


def _start(pattern: str) -> str:
    """Return what all names that match the pattern begin with."""
    return _WILDCARD.split(pattern, maxsplit=1)[0]


def add_wait(connection: Connection, run_id: str, project: str, asked: AwaitedEvent, head: int) -> None:
    """Write down what a run waits for."""
    event = asked.model_dump_json(exclude_none=True)
    row = {"run_id": run_id, "project": project, "event": event, "head": head}
    number = connection.execute(insert(event_waits).values(**row).returning(event_waits.c.number)).scalar_one()
    kind, terms = terms_of(project, asked)
    connection.execute(insert(event_wait_terms), [{"kind": kind, "term": term, "number": number} for term in terms])


def remove_wait(connection: Connection, run_id: str) -> None:
    """Remove a run's wait for an event."""
    mine = event_waits.c.run_id == run_id
    connection.execute(delete(event_wait_terms).where(_T.number == select(event_waits.c.number).where(mine).scalar_subquery()))
    connection.execute(delete(event_waits).where(mine))


class Candidates(NamedTuple):
    """Runs that may wait for an event, in the order in which they began; there may be more after the wait `last`. None: these are all."""

    waits: list[Wait]
    last: int | None


def waits_for(connection: Connection, rows: Iterable[Any], fired: Fired, most: int, *, after: int = 0) -> Candidates:
    """Return the first `most` runs, of those that began to wait after the wait `after`, that may wait for one of these events."""
    numbers: set[int] = set()
    last: int | None = None
    for kind, wanted in _terms(connection, rows, fired).items():
        for some in slices(wanted):
            given = {"terms": list(some), "kind": kind, "after": after, "most": most}
            found = connection.execute(_first, given).scalars().all()
            numbers.update(found)
            if len(found) == most:
                last = found[-1] if last is None else min(last, found[-1])
    first = sorted(number for number in numbers if last is None or number <= last)
    if len(first) > most:
        del first[most:]
        last = first[-1]
    waits = _read(connection, first)
    return Candidates(waits, waits[-1].number if len(waits) < len(first) and waits else last)


def _terms(connection: Connection, rows: Iterable[Any], fired: Fired) -> dict[str, Iterable[str]]:
    """Return the terms that these events have, by kind, of those kinds of which there are any."""
    kinds = set(connection.execute(_kinds).scalars())
    listed = list(rows)
    terms: dict[str, Iterable[str]] = {kind: {getattr(row, kind) for row in listed} - {None} for kind in _FIELDS if kind in kinds}
    names = {f"{project}/{name}" for (_, project), several in fired.items() for name in several}
    if "name" in kinds:
        terms["name"] = names
    if "prefix" in kinds:
        terms["prefix"] = {prefix for (_, project), several in fired.items() for name in several for prefix in prefixes(project, name)}
    return terms


def _read(connection: Connection, numbers: Iterable[int]) -> list[Wait]:
    """Return the first of these waits, in order of their numbers: one, and others while they have MAX_PATTERNS patterns together."""
    waits: list[Wait] = []
    patterns = 0
    for some in slices(numbers):
        with connection.execute(_waits, {"numbers": list(some)}, execution_options=LITTLE_BY_LITTLE) as rows:
            for row in rows:
                asked = AwaitedEvent.model_validate_json(row.event)
                patterns += len(asked.on)
                if waits and patterns > MAX_PATTERNS:
                    return waits
                waits.append(Wait(row.run_id, row.project, asked, row.head, row.number))
    return waits
