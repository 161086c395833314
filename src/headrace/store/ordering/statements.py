"""Define the SQL statements of the ordering store, for SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from headrace.core.ordering.delivery import State
from headrace.store.dialects.statements import MAX_INSERT_ROWS, BulkInsert, DriverStatement, Runs, StatementResult
from headrace.store.tables.ordering import ordering_events, ordering_given_up, ordering_handled

T = TypeVar("T")
MAX_PARAMETERS: Final = 10_000
# `+scope_id` excludes the scope from the index lookup, so only the event is looked up. Otherwise both databases may
# read the whole scope if they estimate it as small.


class ScopeRow(NamedTuple):
    """A row of `ordering_scopes`."""

    id: int
    lookback: int
    version: int
    clock: int
    age: int
    head: int
    position: int
    lost: int
    late: int
    cycles: int
    handled: int
    held: int
    holds: str
    releasing: int


_scope_row = DriverStatement(f"SELECT {', '.join(ScopeRow._fields)} FROM ordering_scopes WHERE id = :scope")  # noqa: S608

_TREE = """
WITH RECURSIVE roots AS ({roots}), tree(seq, key) AS (SELECT seq, key FROM roots UNION ALL SELECT e.seq, e.key FROM tree CROSS JOIN {below})
SELECT seq FROM tree LIMIT :limit
"""
_BELOW = "ordering_events e WHERE +e.scope_id = :scope AND e.leader_key = tree.key AND e.state = 'blocked'"
# SQLite reads followers in the order of the index, by position. PostgreSQL needs ORDER BY for that. The LIMIT also
# prevents a join in PostgreSQL, which would use one column of the index and read the whole scope for each level of
# the tree.
_BELOW_EACH = f"LATERAL (SELECT e.seq, e.key FROM {_BELOW} ORDER BY e.position LIMIT :limit) e"  # noqa: S608

_DUE = "SELECT seq, key FROM ordering_events WHERE scope_id = :scope AND due <= :now ORDER BY due, position LIMIT :limit"
_ONE = """
SELECT seq, key FROM ordering_events
WHERE +scope_id = :scope AND key = :key AND (state = 'ready' OR (state = 'claimed' AND due <= :now))
"""
_AFTER = """
SELECT seq, key FROM ordering_events
WHERE +scope_id = :scope AND leader_key IN :keys AND state = 'ready' AND due <= :now ORDER BY position LIMIT :limit
"""


def _trees(roots: str, **lists: str) -> DriverStatement:
    return DriverStatement(_TREE.format(roots=roots, below=_BELOW), postgresql=_TREE.format(roots=roots, below=_BELOW_EACH), **lists)


due, one, after = _trees(_DUE), _trees(_ONE), _trees(_AFTER, keys="bytea")
"""Find claimable events, each followed by the events that wait only for it, while there is room."""

_CLAIMED = "RETURNING seq, source, id, follows, occurred, body, key, leader_key, position, mark, attempts"
# An event that waits only for others in this claim stays blocked: it is returned with them and cannot be claimed
# alone.
take = DriverStatement(
    f"""
UPDATE ordering_events SET
    state = CASE WHEN state = 'blocked' THEN state ELSE 'claimed' END,
    due = CASE WHEN state = 'blocked' THEN NULL ELSE :lease END,
    claim = :token,
    attempts = attempts + 1
WHERE +scope_id = :scope AND seq IN :seqs
{_CLAIMED}
""",  # noqa: S608
    seqs="bigint",
)


def _take(which: str) -> DriverStatement:
    return DriverStatement(
        f"""
UPDATE ordering_events SET state = 'claimed', due = :lease, claim = :token, attempts = attempts + 1
WHERE +scope_id = :scope AND seq IN ({which})
{_CLAIMED}
"""  # noqa: S608
    )


take_due = _take("SELECT seq FROM ordering_events WHERE scope_id = :scope AND due <= :now ORDER BY due, position LIMIT :limit")
take_followers = _take(
    "SELECT seq FROM ordering_events WHERE +scope_id = :scope AND leader_key = :key "
    "AND (state = 'blocked' OR (state = 'ready' AND due <= :now)) "
    "AND NOT EXISTS (SELECT 1 FROM ordering_events WHERE +scope_id = :scope AND key = :key) ORDER BY position LIMIT :limit"
)
"""Claim the followers of a handled event. The statement finds none while the event has a row."""
take_back = DriverStatement("UPDATE ordering_events SET attempts = attempts - 1 WHERE +scope_id = :scope AND seq IN :seqs", seqs="bigint")

_HELD = "+scope_id = :scope AND claim = :token AND state IN ('claimed', 'blocked') AND seq IN :seqs"
settle = DriverStatement(f"DELETE FROM ordering_events WHERE {_HELD} RETURNING key, position", seqs="bigint")  # noqa: S608
_SETTLE_ONE = (
    "DELETE FROM ordering_events WHERE +scope_id = :scope AND seq = :seq AND (claim = :token OR :alone = 1) RETURNING key, position"
)
_settle_one = DriverStatement(_SETTLE_ONE)
_settle_in_one_statement = DriverStatement(
    f"""
WITH settled AS ({_SETTLE_ONE}), added AS (
    INSERT INTO ordering_handled (scope_id, key, position, at) SELECT :scope, key, coalesce(position, 0), :now FROM settled
)
UPDATE ordering_scopes SET handled = handled + 1 WHERE id = :scope AND EXISTS (SELECT 1 FROM settled) RETURNING releasing
"""  # noqa: S608
)
renew = DriverStatement(
    f"UPDATE ordering_events SET due = CASE WHEN state = 'claimed' THEN :lease END WHERE {_HELD} RETURNING seq",  # noqa: S608
    seqs="bigint",
)
remove = DriverStatement("DELETE FROM ordering_events WHERE +scope_id = :scope AND seq = :seq")
_write_released = DriverStatement(
    "UPDATE ordering_events SET state = :state, due = :due, position = :position, mark = :mark WHERE +scope_id = :scope AND seq = :seq"
)
_RELEASED_COLUMNS = {"state": "text", "due": "bigint", "position": "bigint", "mark": "text", "seq": "bigint"}
_ARRAYS = {name: f"CAST(:{name} AS {kind}[])" for name, kind in _RELEASED_COLUMNS.items()}
# One statement per event takes PostgreSQL four times as long. A join must be avoided too: PostgreSQL estimates the
# scope as small, and would compare each of its events with each released one.
_write_released_batch = DriverStatement(
    f"""
UPDATE ordering_events SET (state, due, position, mark) = (
    SELECT {", ".join(f"({_ARRAYS[name]})[i]" for name in _RELEASED_COLUMNS if name != "seq")}
    FROM (SELECT array_position({_ARRAYS["seq"]}, ordering_events.seq) AS i OFFSET 0) AS released
) WHERE +scope_id = :scope AND seq = ANY({_ARRAYS["seq"]})
"""  # noqa: S608
)
put_off = DriverStatement(
    "UPDATE ordering_events SET state = :becomes, due = :again, error = :why, claim = NULL "
    "WHERE +scope_id = :scope AND seq = :seq AND (claim = :token AND state IN ('claimed', 'blocked') OR :alone = 1) RETURNING seq"
)
put_off_new = DriverStatement(
    "UPDATE ordering_events SET state = :becomes, due = :again, error = :why, attempts = 1 WHERE +scope_id = :scope AND key = :key"
)
give_back = DriverStatement(
    f"""
UPDATE ordering_events SET
    attempts = attempts - 1,
    claim = NULL,
    due = CASE WHEN state = 'claimed' THEN :now END,
    state = CASE WHEN state = 'claimed' THEN 'ready' ELSE state END
WHERE {_HELD}
""",  # noqa: S608
    seqs="bigint",
)
dead_keys = DriverStatement("SELECT key FROM ordering_events WHERE scope_id = :scope AND state IN ('dead', 'skipped') ORDER BY seq")
redrive = DriverStatement(
    "UPDATE ordering_events SET state = 'ready', due = :now, attempts = 0, claim = NULL "
    "WHERE +scope_id = :scope AND state IN ('dead', 'skipped') AND key IN :keys",
    keys="bytea",
)

states_of_open = DriverStatement("SELECT key, state FROM ordering_events WHERE +scope_id = :scope AND key IN :keys", keys="bytea")
states_of_all = DriverStatement(
    "SELECT key, 'handled' FROM ordering_handled WHERE scope_id = :scope AND key IN :keys "
    "UNION ALL SELECT key, state FROM ordering_events WHERE +scope_id = :scope AND key IN :keys",
    keys="bytea",
)
delete_given_up = DriverStatement("DELETE FROM ordering_given_up WHERE scope_id = :scope AND key IN :keys", keys="bytea")
WAITING: Final = "SELECT seq, key, leader_key, occurred, id, since, late FROM ordering_events WHERE scope_id = :scope AND state = 'waiting'"
waiting_some = DriverStatement(f"{WAITING} LIMIT :limit")
GIVEN_UP: Final = "SELECT number, key, at FROM ordering_given_up WHERE scope_id = :scope"
given_up_some = DriverStatement(f"{GIVEN_UP} LIMIT :limit")

_EVENT = "source, id, follows, occurred, body, key, leader_key"
event_by_key = DriverStatement("SELECT seq, key, state, position, claim, due FROM ordering_events WHERE +scope_id = :scope AND key = :key")
followers = DriverStatement(
    f"SELECT {_EVENT} FROM ordering_events WHERE +scope_id = :scope AND leader_key = :key "  # noqa: S608
    "AND state IN ('waiting', 'blocked', 'ready') ORDER BY occurred, id"
)
ready = DriverStatement(
    f"SELECT {_EVENT}, mark FROM ordering_events "  # noqa: S608
    "WHERE scope_id = :scope AND due <= :now ORDER BY due, position LIMIT :limit"
)
waits = DriverStatement(
    f"SELECT {_EVENT}, state, since FROM ordering_events "  # noqa: S608
    "WHERE scope_id = :scope AND state IN ('waiting', 'blocked') ORDER BY seq LIMIT :limit"
)
by_state = DriverStatement("SELECT state, count(*) FROM ordering_events WHERE scope_id = :scope GROUP BY state")
next_due = DriverStatement(
    f"SELECT {', '.join(ScopeRow._fields)}, "  # noqa: S608
    "(SELECT due FROM ordering_events WHERE scope_id = :scope AND due IS NOT NULL ORDER BY due LIMIT 1), "
    "(SELECT since FROM ordering_events WHERE scope_id = :scope AND state = 'waiting' ORDER BY since LIMIT 1) "
    "FROM ordering_scopes WHERE id = :scope"
)
look = DriverStatement(
    """
SELECT (SELECT state FROM ordering_events WHERE +scope_id = :scope AND key = :key),
    EXISTS (SELECT 1 FROM ordering_handled WHERE scope_id = :scope AND key = :key),
    (SELECT state FROM ordering_events WHERE +scope_id = :scope AND key = :leader),
    EXISTS (SELECT 1 FROM ordering_handled WHERE scope_id = :scope AND key = :leader)
"""
)

end_turn = DriverStatement(
    """
UPDATE ordering_scopes SET version = :version, clock = :clock, age = :age, head = :head, position = :position, lost = :lost, late = :late,
    cycles = :cycles, held = held + :waited, holds = :holds, handled = handled + :passed
WHERE id = :scope
"""
)
_count_one_handled = DriverStatement("UPDATE ordering_scopes SET handled = handled + 1 WHERE id = :scope RETURNING releasing")
count_handled = DriverStatement("UPDATE ordering_scopes SET handled = handled + :count WHERE id = :scope")
set_clock = DriverStatement("UPDATE ordering_scopes SET clock = :now, age = :age WHERE id = :scope")

steps_since = DriverStatement(
    "SELECT version, step FROM ordering_journal WHERE scope_id = :scope AND version > :since ORDER BY version LIMIT :limit"
)
delete_steps = DriverStatement("DELETE FROM ordering_journal WHERE scope_id = :scope AND version <= :until")
add_step = DriverStatement("INSERT INTO ordering_journal (scope_id, version, step) VALUES (:scope, :version, :step)")

add_events = BulkInsert(ordering_events)
add_handled = BulkInsert(ordering_handled)
add_given_up = BulkInsert(ordering_given_up)

_UNKNOWN = """
NOT EXISTS (SELECT 1 FROM ordering_events WHERE +scope_id = :scope AND key = :key)
AND NOT EXISTS (SELECT 1 FROM ordering_events WHERE +scope_id = :scope AND leader_key = :key)
AND NOT EXISTS (SELECT 1 FROM ordering_handled WHERE scope_id = :scope AND key = :key)
AND NOT EXISTS (SELECT 1 FROM ordering_given_up WHERE scope_id = :scope AND key = :key)
"""
_PASSED = f"""
INSERT INTO ordering_handled (scope_id, key, position, at)
SELECT id, :key, position + 1, :now FROM ordering_scopes WHERE id = :scope AND {_UNKNOWN}
"""  # noqa: S608
_PASS = "UPDATE ordering_scopes SET position = position + 1, head = head + 1, handled = handled + 1 WHERE id = :scope"  # noqa: S105
_pass, _count_passed = DriverStatement(_PASSED), DriverStatement(_PASS)
_pass_in_one_statement = DriverStatement(
    f"""
WITH passed AS ({_PASSED} RETURNING position)
{_PASS} AND EXISTS (SELECT 1 FROM passed) RETURNING id
"""  # noqa: S608
)
delete_handled = DriverStatement(
    """
DELETE FROM ordering_handled WHERE scope_id = :scope AND key IN
    (SELECT key FROM ordering_handled WHERE scope_id = :scope AND at <= :before ORDER BY at LIMIT :limit)
"""
)


def scope_row(connection: Runs, scope: int) -> ScopeRow:
    """Return the row of a scope."""
    return ScopeRow(*_scope_row(connection, scope=scope).all()[0])


def pass_through(connection: Runs, scope: int, key: bytes, now: int) -> bool:
    """Record an unknown event as handled.

    Return False if the scope knows the event: it arrived before, was given up, or has followers.
    """
    if connection.dialect.name == "postgresql":
        return bool(_pass_in_one_statement(connection, scope=scope, key=key, now=now).all())
    if _pass(connection, scope=scope, key=key, now=now).rowcount < 1:
        return False
    _count_passed(connection, scope=scope)
    return True


def settle_one(connection: Runs, scope: int, seq: int, now: int, *, token: str, alone: bool) -> Callable[[], bool | None]:
    """Record one claimed event as handled.

    Return a function that returns whether `ordering_releases` has rows, or None if the claim is lost. PostgreSQL's
    result arrives with those of the next statements, so call the function late.
    """
    parameters = {"scope": scope, "seq": seq, "token": token, "alone": int(alone)}
    if connection.dialect.name == "postgresql":
        answer = _settle_in_one_statement(connection, now=now, **parameters)
        return lambda: _releasing(answer.all())
    handled = _settle_one(connection, **parameters).all()
    add_handled(connection, [(scope, key, position or 0, now) for key, position in handled])
    counted = _count_one_handled(connection, scope=scope).all() if handled else []
    return lambda: _releasing(counted)


def _releasing(rows: Sequence[Sequence[int]]) -> bool | None:
    return bool(rows[0][0]) if rows else None


def write_released(connection: Runs, scope: int, rows: Sequence[tuple[str, int | None, int, str | None, int]]) -> None:
    """Store released events, given as rows of (state, due, position, mark, seq)."""
    if connection.dialect.name != "postgresql" or len(rows) <= MAX_INSERT_ROWS:
        _write_released.each(connection, [(*row[:4], scope, row[4]) for row in rows])
    else:
        columns = zip(_RELEASED_COLUMNS, map(list, zip(*rows, strict=True)), strict=True)
        _write_released_batch(connection, scope=scope, **dict(columns))


def slices(items: Iterable[T], size: int = MAX_PARAMETERS) -> Iterator[Sequence[T]]:
    """Split the items into slices of `size`, by default as many as one statement accepts."""
    rest = list(items)
    for start in range(0, len(rest), size):
        yield rest[start : start + size]


def states_sent(connection: Runs, scope: int, keys: Iterable[bytes], *, logged: bool = False) -> list[StatementResult]:
    """Request the states of these events without reading the result. With `logged`, omit handled events."""
    statement = states_of_open if logged else states_of_all
    return [statement(connection, scope=scope, keys=some) for some in slices(dict.fromkeys(keys))]


def states(connection: Runs, scope: int, keys: Iterable[bytes], *, logged: bool = False) -> dict[bytes, State]:
    """Return the known states of these events by key. With `logged`, handled events are omitted."""
    return {row[0]: row[1] for answer in states_sent(connection, scope, keys, logged=logged) for row in answer.all()}
