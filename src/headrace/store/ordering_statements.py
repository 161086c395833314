"""What the SQL home of the ordering says to its database; the same on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from sqlalchemy import Connection, bindparam, delete, insert, null, select, update

from headrace.core.handling import State
from headrace.store.dialects import BulkInsert, Plain
from headrace.store.ordering_tables import ordering_events, ordering_given_up, ordering_handled, ordering_journal, ordering_scopes

T = TypeVar("T")
MOST_PARAMETERS: Final = 10_000
# `+scope_id`: the scope is not looked up, the event is. Neither database then reads all of a scope that it thinks small.
_E, _G, _J = ordering_events.c, ordering_given_up.c, ordering_journal.c
_mine = _E.scope_id == bindparam("scope")

_TREE = """
WITH RECURSIVE roots AS ({roots}), tree(seq, key) AS (SELECT seq, key FROM roots UNION ALL SELECT e.seq, e.key FROM tree CROSS JOIN {below})
SELECT seq FROM tree LIMIT :most
"""
_BELOW = "ordering_events e WHERE +e.scope_id = :scope AND e.leader_key = tree.key AND e.state = 'blocked'"
# OFFSET 0 keeps PostgreSQL from joining: it would take one column of the index and read the whole scope for each step down.
_BELOW_EACH = f"LATERAL (SELECT e.seq, e.key FROM {_BELOW} OFFSET 0) e"  # noqa: S608

_DUE = "SELECT seq, key FROM ordering_events WHERE scope_id = :scope AND due <= :now ORDER BY due, position LIMIT :most"
_ONE = """
SELECT seq, key FROM ordering_events
WHERE +scope_id = :scope AND key = :key AND (state = 'ready' OR (state = 'claimed' AND due <= :now))
"""
_AFTER = """
SELECT seq, key FROM ordering_events
WHERE +scope_id = :scope AND leader_key IN :keys AND state = 'ready' AND due <= :now ORDER BY position LIMIT :most
"""


def _trees(roots: str, **lists: str) -> Plain:
    return Plain(_TREE.format(roots=roots, below=_BELOW), postgresql=_TREE.format(roots=roots, below=_BELOW_EACH), **lists)


due, one, after = _trees(_DUE), _trees(_ONE), _trees(_AFTER, keys="bytea")
"""Of what may be claimed and, as far down as there is room, what only waits for that: a leader always comes before its followers."""

# What only waits for one in this claim stays blocked: it comes back with that one, and nobody can take it alone.
take = Plain(
    """
UPDATE ordering_events SET
    state = CASE WHEN state = 'blocked' THEN state ELSE 'claimed' END,
    due = CASE WHEN state = 'blocked' THEN NULL ELSE :lease END,
    claim = :token,
    attempts = attempts + 1
WHERE +scope_id = :scope AND seq IN :seqs
RETURNING seq, source, id, follows, occurred, body, key, leader_key, position, mark, attempts
""",
    seqs="bigint",
)
_HELD = "+scope_id = :scope AND claim = :token AND state IN ('claimed', 'blocked') AND seq IN :seqs"
settle = Plain(f"DELETE FROM ordering_events WHERE {_HELD} RETURNING key, position", seqs="bigint")  # noqa: S608
remove = delete(ordering_events).where(_mine, _E.seq == bindparam("place"))
unblock = Plain(
    """
UPDATE ordering_events SET
    state = CASE WHEN claim = :token THEN 'claimed' ELSE 'ready' END,
    due = CASE WHEN claim = :token THEN :lease ELSE :now END
WHERE +scope_id = :scope AND state = 'blocked' AND leader_key IN :keys
""",
    keys="bytea",
)
place = Plain(
    "UPDATE ordering_events SET state = :state, due = :due, position = :position, mark = :mark WHERE +scope_id = :scope AND seq = :seq"
)
put_off = (
    update(ordering_events)
    .where(_mine, _E.seq == bindparam("place"), _E.claim == bindparam("token"), _E.state.in_(["claimed", "blocked"]))
    .values(state=bindparam("becomes"), due=bindparam("again"), error=bindparam("why"), claim=null())
)
give_back = Plain(
    f"""
UPDATE ordering_events SET
    attempts = attempts - 1,
    claim = NULL,
    state = CASE WHEN state = 'blocked' THEN state ELSE 'ready' END,
    due = CASE WHEN state = 'blocked' THEN NULL ELSE :now END
WHERE {_HELD}
""",  # noqa: S608
    seqs="bigint",
)
_REDRIVE = (
    "UPDATE ordering_events SET state = 'ready', due = :now, attempts = 0, claim = NULL "
    "WHERE scope_id = :scope AND state IN ('dead', 'skipped')"
)
redrive = Plain(_REDRIVE)
redrive_some = Plain(f"{_REDRIVE} AND key IN :keys", keys="bytea")

states_of_open = Plain("SELECT key, state FROM ordering_events WHERE +scope_id = :scope AND key IN :keys", keys="bytea")
states_of_handled = Plain("SELECT key, 'handled' FROM ordering_handled WHERE scope_id = :scope AND key IN :keys", keys="bytea")
leaders_of = Plain("SELECT DISTINCT leader_key FROM ordering_events WHERE +scope_id = :scope AND seq IN :seqs", seqs="bigint")
given_up_of = Plain("SELECT key FROM ordering_given_up WHERE scope_id = :scope AND key IN :keys", keys="bytea")
forget_given_up = Plain("DELETE FROM ordering_given_up WHERE scope_id = :scope AND key IN :keys", keys="bytea")
waiting = select(_E.seq, _E.key, _E.leader_key, _E.occurred, _E.id, _E.since, _E.late).where(_mine, _E.state == "waiting").order_by(_E.seq)
given_up = select(_G.key).where(_G.scope_id == bindparam("scope"))

scope_row = select(ordering_scopes).where(ordering_scopes.c.id == bindparam("scope"))
write_scope = update(ordering_scopes).where(ordering_scopes.c.id == bindparam("scope"))
steps_since = select(_J.version, _J.step).where(_J.scope_id == bindparam("scope"), _J.version > bindparam("since")).order_by(_J.version)
forget_steps = delete(ordering_journal).where(_J.scope_id == bindparam("scope"), _J.version <= bindparam("until"))
add_step = insert(ordering_journal)

add_events = BulkInsert(ordering_events)
add_handled = BulkInsert(ordering_handled)
add_given_up = BulkInsert(ordering_given_up)


def slices(items: Iterable[T]) -> Iterator[Sequence[T]]:
    """Yield the items as many at a time as one statement takes."""
    rest = list(items)
    for start in range(0, len(rest), MOST_PARAMETERS):
        yield rest[start : start + MOST_PARAMETERS]


def states(connection: Connection, scope: int, keys: Iterable[bytes], *, logged: bool = False) -> dict[bytes, State]:
    """Return what is known of these events; in a scope that is fed from a log, only of those that are not handled yet."""
    found: dict[bytes, State] = {}
    for some in slices(dict.fromkeys(keys)):
        for statement in [states_of_open] if logged else [states_of_handled, states_of_open]:
            found.update((row[0], row[1]) for row in statement(connection, scope=scope, keys=some).all())
    return found


def unblock_followers(connection: Connection, scope: int, keys: Iterable[bytes], now: int, *, token: str, lease: int) -> None:
    """Make ready what these blocked; what the claim `token` took along stays in its hands until `lease`."""
    for some in slices(keys):
        unblock(connection, scope=scope, keys=some, token=token, lease=lease, now=now)
