"""Find the runs that may wait for an event by an index on their terms.

The cost grows with matches, not with waiting runs.
Each wait has one kind of term, the most selective that it names: `id`, `subject`, `name` (the full name of a
trigger), `type` or `prefix` (the literal start of a pattern of trigger names). A term is necessary but not
sufficient, so a wait that is found by it is compared in full. The event patterns of waits are in one index, so
that a payload is decoded once, and the cost grows with the patterns that match.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select

from headrace.core.matching.payloads import Payload, PayloadIndex, PayloadPattern, parse_pattern_text, pattern_text
from headrace.errors import MalformedEvent
from headrace.store.dialects.statements import LITTLE_BY_LITTLE, in_list
from headrace.store.ordering.statements import slices
from headrace.store.tables.task_runs import event_wait_terms, event_waits
from headrace.wire.task_runs import AwaitedEvent

Fired = Mapping[tuple[int, str], Sequence[str]]
"""The names of the triggers that fired on each event, by its seq and project."""

_FIELDS: Final = ("id", "subject", "type")
_T = event_wait_terms.c
_kinds = select(_T.kind).distinct()
_first = (
    select(_T.number)
    .where(_T.kind == bindparam("kind"), in_list(_T.term, "terms"), _T.number > bindparam("after"))
    .order_by(_T.number)
    .limit(bindparam("limit"))
)
_waits = select(event_waits).where(in_list(event_waits.c.number, "numbers")).order_by(event_waits.c.number)

MAX_PATTERNS: Final = 2_000
"""Maximum number of trigger name patterns that one transaction compares.

The patterns of the first wait are always compared.
"""
MAX_PATTERN_FIELDS: Final = 20_000
"""Maximum number of fields of event patterns that one transaction compares. Those of the first wait are always compared."""
_WILDCARD = re.compile(r"[*?\[]")
_WILDCARD_OR_END = re.compile(r"[*?\[\]]")


class Wait:
    """A run that waits, with its awaited event and the seq after which it waits.

    `number` is the number of the wait, once it has one.
    """

    def __init__(self, run_id: str, project: str, awaited: AwaitedEvent, head: int, number: int = 0) -> None:
        self.number = number
        self.run_id = run_id
        self.project = project
        self.head = head
        self.terms = terms_of(project, awaited)
        self.on = [(pattern, _start(pattern), _WILDCARD_OR_END.split(pattern)[-1]) for pattern in awaited.on]
        self._matches: dict[str, bool] = {}
        self.fields = awaited.model_dump(exclude={"on", "match"}, exclude_none=True)
        self.pattern = None if awaited.match is None else parse_pattern_text(pattern_text(awaited.match))
        """The pattern that the payload must match."""

    @property
    def payload_pattern(self) -> PayloadPattern | None:
        """The pattern of this wait alone."""
        return None if self.pattern is None else PayloadPattern(self.pattern)

    def matches(self, event: Any, names: Iterable[str]) -> bool:
        """Return whether this is the awaited event but for its payload.

        `names` has the names of the triggers of its project that fired on it.
        """
        if event.seq <= self.head or any(getattr(event, name) != value for name, value in self.fields.items()):
            return False
        return any(self._on(name) for name in names)

    def _on(self, name: str) -> bool:
        """Return whether a pattern matches the name.

        The literal start and end are compared first, so that few patterns are compiled.
        """
        known = self._matches.get(name)
        if known is None:
            known = any(name.startswith(start) and name.endswith(end) and fnmatchcase(name, pattern) for pattern, start, end in self.on)
            self._matches[name] = known
        return known


class WaitIndex:
    """An index of waiting runs by their terms and patterns. An event examines few of them, however many there are."""

    def __init__(self, waits: Iterable[Wait], fired: Fired) -> None:
        self._fired = fired
        self._names: dict[int, set[tuple[str, str]]] = {}
        for (seq, project), names in fired.items():
            self._names.setdefault(seq, set()).update((project, name) for name in names)
        self._plain = _TermIndex()
        self._with_pattern = _TermIndex()
        self._by_number: dict[int, Wait] = {}
        """The waits with a pattern."""
        self._patterns: PayloadIndex | None = None
        for wait in waits:
            if wait.pattern is None:
                self._plain.add(wait)
            else:
                self._with_pattern.add(wait)
                self._by_number[wait.number] = wait

    @property
    def has_patterns(self) -> bool:
        """Whether a wait has a pattern."""
        return bool(self._by_number)

    def matched(self, payload: Payload) -> Collection[int] | None:
        """Return the numbers of the waits whose pattern a payload matches, or None if it is too long to match all of them at once."""
        if not self._by_number:
            return ()
        if self._patterns is None:
            self._patterns = PayloadIndex()
            for number, wait in self._by_number.items():
                if wait.pattern is not None:
                    self._patterns.add(wait.pattern, number)
        try:
            return self._patterns.matches(payload)
        except MalformedEvent:
            return None

    def find(self, event: Any, matched: Collection[int] | None, had: Container[tuple[str, int]]) -> list[Wait]:
        """Return the waits for the event whose runs have not received it, in the order in which they began.

        `matched` has the numbers of the waits whose pattern matches, and may have others. If it is None, all patterns count as matched.
        """
        waits = (wait for wait in self._wanting(event, matched) if (wait.run_id, event.seq) not in had)
        return sorted(waits, key=lambda wait: wait.number)

    def remove(self, wait: Wait) -> None:
        """Remove the wait of a run."""
        if wait.pattern is None:
            self._plain.remove(wait)
            return
        self._with_pattern.remove(wait)
        del self._by_number[wait.number]

    def have(self, event: Any, matched: Collection[int] | None = None) -> bool:
        """Return whether any of the waits is for the event. `matched` is that of `find`."""
        return next(self._wanting(event, matched), None) is not None

    def _wanting(self, event: Any, matched: Collection[int] | None) -> Iterator[Wait]:
        names = self._names.get(event.seq, ())
        waits = self._plain.find(event, names)
        if matched is None:
            waits += self._with_pattern.find(event, names)
        else:
            waits += [self._by_number[number] for number in matched if number in self._by_number]
        return (wait for wait in waits if wait.matches(event, self._fired.get((event.seq, wait.project), ())))


class _TermIndex:
    """Waits by their terms."""

    def __init__(self) -> None:
        self._by_term: dict[tuple[str, str], dict[str, Wait]] = {}
        self._prefixes: dict[tuple[str, str], list[str]] = {}

    def add(self, wait: Wait) -> None:
        """Add a wait, before the first `find`."""
        kind, terms = wait.terms
        for term in terms:
            self._by_term.setdefault((kind, term), {})[wait.run_id] = wait

    def remove(self, wait: Wait) -> None:
        """Remove a wait that was added."""
        kind, terms = wait.terms
        for term in terms:
            del self._by_term[kind, term][wait.run_id]

    def find(self, event: Any, names: Iterable[tuple[str, str]]) -> list[Wait]:
        """Return the waits that have a term of the event, each once. `names` are the projects and names of the triggers that fired."""
        if not self._by_term:
            return []
        keys = [(kind, getattr(event, kind)) for kind in _FIELDS]
        for project, name in names:
            keys.append(("name", f"{project}/{name}"))
            keys += [("prefix", prefix) for prefix in self._prefixes_of(project, name)]
        waits = {run_id: wait for key in keys for run_id, wait in self._by_term.get(key, {}).items()}
        return list(waits.values())

    def _prefixes_of(self, project: str, name: str) -> list[str]:
        known = self._prefixes.get((project, name))
        if known is None:
            known = [prefix for prefix in prefixes(project, name) if ("prefix", prefix) in self._by_term]
            self._prefixes[project, name] = known
        return known


def terms_of(project: str, awaited: AwaitedEvent) -> tuple[str, list[str]]:
    """Return the kind of a wait's terms, and the terms."""
    for kind in ("id", "subject"):
        value = getattr(awaited, kind)
        if value is not None:
            return kind, [value]
    named = [f"{project}/{pattern}" for pattern in dict.fromkeys(awaited.on)]
    if not any(mark in pattern for pattern in awaited.on for mark in "*?["):
        return "name", named
    if awaited.type is not None:
        return "type", [awaited.type]
    return "prefix", list(dict.fromkeys(f"{project}/{_start(pattern)}" for pattern in awaited.on))


def prefixes(project: str, name: str) -> list[str]:
    """Return the terms of kind `prefix` that find a trigger's name."""
    return [f"{project}/{name[:length]}" for length in range(len(name) + 1)]


def _start(pattern: str) -> str:
    """Return the longest literal start of all names that match the pattern."""
    return _WILDCARD.split(pattern, maxsplit=1)[0]


def add_wait(connection: Connection, run_id: str, project: str, awaited: AwaitedEvent, head: int) -> None:
    """Store the wait of a run for an event."""
    event = awaited.model_dump_json(exclude_none=True)
    row = {"run_id": run_id, "project": project, "event": event, "head": head}
    number = connection.execute(insert(event_waits).values(**row).returning(event_waits.c.number)).scalar_one()
    kind, terms = terms_of(project, awaited)
    connection.execute(insert(event_wait_terms), [{"kind": kind, "term": term, "number": number} for term in terms])


def remove_wait(connection: Connection, run_id: str) -> None:
    """Remove a run's wait for an event."""
    mine = event_waits.c.run_id == run_id
    connection.execute(delete(event_wait_terms).where(_T.number == select(event_waits.c.number).where(mine).scalar_subquery()))
    connection.execute(delete(event_waits).where(mine))


class Candidates(NamedTuple):
    """Runs that may wait for an event, in the order in which they began to wait.

    More may follow after the wait `last`. Without `last`, these are all.
    """

    waits: list[Wait]
    last: int | None


def waits_for(connection: Connection, rows: Iterable[Any], fired: Fired, limit: int, *, after: int = 0) -> Candidates:
    """Return the first `limit` runs that may wait for one of these events, among the waits after `after`."""
    numbers: set[int] = set()
    last: int | None = None
    for kind, terms in _terms(connection, rows, fired).items():
        for some in slices(terms):
            parameters = {"terms": list(some), "kind": kind, "after": after, "limit": limit}
            wait_numbers = connection.execute(_first, parameters).scalars().all()
            numbers.update(wait_numbers)
            if len(wait_numbers) == limit:
                last = wait_numbers[-1] if last is None else min(last, wait_numbers[-1])
    first = sorted(number for number in numbers if last is None or number <= last)
    if len(first) > limit:
        del first[limit:]
        last = first[-1]
    waits = _read(connection, first)
    return Candidates(waits, waits[-1].number if len(waits) < len(first) and waits else last)


def _terms(connection: Connection, rows: Iterable[Any], fired: Fired) -> dict[str, Iterable[str]]:
    """Return the terms of these events by kind, for the kinds that have any."""
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
    """Return the first of these waits, ordered by number: one, and more while they have at most MAX_PATTERNS and MAX_PATTERN_FIELDS."""
    waits: list[Wait] = []
    patterns = fields = 0
    for some in slices(numbers):
        with connection.execute(_waits, {"numbers": list(some)}, execution_options=LITTLE_BY_LITTLE) as rows:
            for row in rows:
                awaited = AwaitedEvent.model_validate_json(row.event)
                patterns += len(awaited.on)
                if waits and patterns > MAX_PATTERNS:
                    return waits
                wait = Wait(row.run_id, row.project, awaited, row.head, row.number)
                fields += 0 if wait.pattern is None else sum(map(len, wait.pattern.alternatives))
                if waits and fields > MAX_PATTERN_FIELDS:
                    return waits
                waits.append(wait)
    return waits
