"""Set a scope's clock back. Stored moments in the future become the moment of the reset, some per transaction.

Invariant: the core's ordering and each copy of it change immediately. Rows follow, a slice per transaction. A reader
of an unchanged row takes the earlier of its moment and the moment of the reset. Moments stored after the reset stay,
because their seq or number is higher. Events are claimed only after all rows have changed. Their order is therefore
the same as if one transaction had changed all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from headrace.core.ordering.snapshot import SnapshotEvent
from headrace.store.dialects.statements import DriverStatement, Runs
from headrace.store.ordering import releases

# The latest moments first: those stored after the reset are the earliest. A changed row no longer matches.
_LATER: Final = {
    "since": "state = 'waiting' AND since > :now ORDER BY since DESC",
    "ready": "state = 'ready' AND due > :now ORDER BY due DESC",
    "claimed": "state = 'claimed' AND due > :lease ORDER BY due DESC",
    "given up": "number <= :last AND at > :now",
    "handled": "at > :now ORDER BY at DESC",
}
_CHANGED: Final = {"since": "since = :now", "ready": "due = :now", "claimed": "due = :lease"}
_OTHERS: Final = {"given up": "ordering_given_up", "handled": "ordering_handled"}


def _statement(state: str) -> DriverStatement:
    if state in _OTHERS:
        table = _OTHERS[state]
        some = f"SELECT key FROM {table} WHERE scope_id = :scope AND {_LATER[state]} LIMIT :limit"  # noqa: S608
        return DriverStatement(f"UPDATE {table} SET at = :now WHERE scope_id = :scope AND key IN ({some})")  # noqa: S608
    some = f"SELECT seq FROM ordering_events WHERE scope_id = :scope AND seq <= :last AND {_LATER[state]} LIMIT :limit"  # noqa: S608
    return DriverStatement(f"UPDATE ordering_events SET {_CHANGED[state]} WHERE +scope_id = :scope AND seq IN ({some})")  # noqa: S608


ALL: Final = tuple(_LATER)
"""The kinds of moments that a scope stores."""
WALL: Final = ("ready", "claimed")
"""The kinds that always use the wall clock. The other kinds use the scope's steady clock, if it has one."""
_statements: Final = {state: _statement(state) for state in _LATER}
_STATES: Final = ", ".join(f"'{state}'" for state in _LATER)
_left = DriverStatement(
    f"SELECT key, state, number, released FROM ordering_releases WHERE scope_id = :scope AND state IN ({_STATES}) ORDER BY released, key"  # noqa: S608
)
_any_left = DriverStatement(f"SELECT 1 FROM ordering_releases WHERE scope_id = :scope AND state IN ({_STATES}) LIMIT 1")  # noqa: S608


def begin(connection: Runs, scope: int, states: Iterable[str], now: int, *, head: int, lost: int) -> None:
    """Record that future moments of these kinds become `now` (µs), up to the seq `head` and the lost leader `lost`."""
    key = uuid4().bytes  # unique: the clock may be set back again before this reset is complete
    rows = [(scope, key, state, lost if state == "given up" else head, now, "", None) for state in states]
    releases.add_releases(connection, rows)
    releases.set_releasing(connection, scope=scope)


def is_left(connection: Runs, scope: int) -> bool:
    """Return whether moments are left to later transactions."""
    return bool(_any_left(connection, scope=scope).all())


def go_on(connection: Runs, scope: int, lease: int) -> bool:
    """Change at most RELEASED_EVENTS moments. Return False if none were left. `lease` is the duration of a claim (µs)."""
    room, ended = releases.RELEASED_EVENTS, False
    left = _left(connection, scope=scope).all()
    for key, state, last, now in left:
        parameters = {"scope": scope, "last": last, "now": now, "lease": now + lease, "limit": room}
        room -= _statements[state](connection, **parameters).rowcount
        if room <= 0:
            break
        releases.end_releases(connection, scope=scope, state=state, keys=[key])
        ended = True
    if ended:
        releases.set_releasing(connection, scope=scope)
    return bool(left)


class Moments:
    """The moments that apply after a reset of the clock, for readers of rows that are not changed yet."""

    def __init__(self, connection: Runs, scope: int) -> None:
        self._left = [(state, last, now) for _, state, last, now in _left(connection, scope=scope).all()]

    def events(self, waiting: Sequence[SnapshotEvent]) -> list[SnapshotEvent]:
        """Return waiting events with the moments that they have after the reset is complete."""
        changed = list(waiting)
        for last, now in self._of("since"):
            changed = [one._replace(since=now) if one.seq <= last and one.since > now else one for one in changed]
        return changed

    def given_up(self, rows: Iterable[tuple[int, bytes, int]]) -> Mapping[bytes, int]:
        """Return the moments at which leaders were given up, by key.

        `rows` are (number, key, at). The result is as after the complete reset.
        """
        listed = list(rows)
        for last, now in self._of("given up"):
            listed = [(number, key, now if number <= last and at > now else at) for number, key, at in listed]
        return {key: at for _, key, at in listed}

    def _of(self, kind: str) -> list[tuple[int, Any]]:
        return [(last, now) for state, last, now in self._left if state == kind]
