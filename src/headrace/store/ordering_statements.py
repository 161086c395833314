"""What the SQL home of the ordering says to its database; the same on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from sqlalchemy import Connection, bindparam, case, delete, insert, null, select, text, update

from headrace.core.handling import State
from headrace.store.dialects import BulkInsert, among
from headrace.store.ordering_tables import ordering_events, ordering_given_up, ordering_handled, ordering_journal, ordering_scopes

T = TypeVar("T")
MOST_PARAMETERS: Final = 10_000
_E, _H, _G, _J = ordering_events.c, ordering_handled.c, ordering_given_up.c, ordering_journal.c
_mine = _E.scope_id == bindparam("scope")

_TREE = """
WITH RECURSIVE roots AS ({roots}), tree(seq, key) AS (
    SELECT seq, key FROM roots
    UNION ALL
    SELECT e.seq, e.key FROM ordering_events e JOIN tree ON e.scope_id = :scope AND e.leader_key = tree.key WHERE e.state = 'blocked'
)
SELECT e.seq, e.key, e.leader_key, e.source, e.id, e.follows, e.occurred, e.body, e.position, e.mark, e.attempts
FROM (SELECT seq FROM tree LIMIT :most) chosen JOIN ordering_events e ON e.scope_id = :scope AND e.seq = chosen.seq
ORDER BY e.position
"""
_DUE = "SELECT seq, key FROM ordering_events WHERE scope_id = :scope AND due <= :now ORDER BY due, position LIMIT :most"
_ONE = """
SELECT seq, key FROM ordering_events
WHERE scope_id = :scope AND key = :key AND (state = 'ready' OR (state = 'claimed' AND due <= :now))
"""
_AFTER = """
SELECT seq, key FROM ordering_events
WHERE scope_id = :scope AND leader_key IN :keys AND state = 'ready' AND due <= :now ORDER BY position LIMIT :most
"""

claim_due = text(_TREE.format(roots=_DUE))
claim_one = text(_TREE.format(roots=_ONE))
claim_after = text(_TREE.format(roots=_AFTER)).bindparams(bindparam("keys", expanding=True))
"""Of what may be claimed and, as far down as there is room, what only waits for that: a leader always comes before its followers."""

# What only waits for one in this claim stays blocked: it comes back with that one, and nobody can take it alone.
take = (
    update(ordering_events)
    .where(_mine, among(_E.seq, "seqs"))
    .values(
        state=case((_E.state == "blocked", "blocked"), else_="claimed"),
        due=case((_E.state == "blocked", null()), else_=bindparam("lease")),
        claim=bindparam("token"),
        attempts=_E.attempts + 1,
    )
)
held = select(_E.seq, _E.key, _E.claim, _E.state, _E.position).where(_mine, among(_E.seq, "seqs"))
remove = delete(ordering_events).where(_mine, among(_E.seq, "seqs"))
unblock = (
    update(ordering_events)
    .where(_mine, _E.state == "blocked", among(_E.leader_key, "keys"))
    .values(
        state=case((_E.claim == bindparam("token"), "claimed"), else_="ready"),
        due=case((_E.claim == bindparam("token"), bindparam("lease")), else_=bindparam("now")),
    )
)
place = text(
    "UPDATE ordering_events SET state = :state, due = :due, position = :position, mark = :mark WHERE scope_id = :scope AND seq = :seq"
)
put_off = (
    update(ordering_events)
    .where(_mine, _E.seq == bindparam("place"), _E.claim == bindparam("token"), _E.state.in_(["claimed", "blocked"]))
    .values(state=bindparam("becomes"), due=bindparam("again"), error=bindparam("why"), claim=null())
)
give_back = (
    update(ordering_events)
    .where(_mine, _E.claim == bindparam("token"), _E.state.in_(["claimed", "blocked"]), among(_E.seq, "seqs"))
    .values(
        attempts=_E.attempts - 1,
        claim=null(),
        state=case((_E.state == "blocked", "blocked"), else_="ready"),
        due=case((_E.state == "blocked", null()), else_=bindparam("now")),
    )
)
dead = (_mine, _E.state.in_(["dead", "skipped"]))
redrive = update(ordering_events).where(*dead).values(state="ready", due=bindparam("now"), attempts=0, claim=null())
redrive_some = redrive.where(among(_E.key, "keys"))

states_of_open = select(_E.key, _E.state).where(_mine, among(_E.key, "keys"))
states_of_handled = select(_H.key).where(_H.scope_id == bindparam("scope"), among(_H.key, "keys"))
leaders_of = select(_E.leader_key).where(_mine, among(_E.seq, "seqs")).distinct()
waiting = select(_E.seq, _E.key, _E.leader_key, _E.occurred, _E.id, _E.since, _E.late).where(_mine, _E.state == "waiting").order_by(_E.seq)
given_up = select(_G.key).where(_G.scope_id == bindparam("scope"))
forget_given_up = delete(ordering_given_up).where(_G.scope_id == bindparam("scope"), among(_G.key, "keys"))

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
        given = {"scope": scope, "keys": some}
        if not logged:
            found.update(dict.fromkeys(connection.execute(states_of_handled, given).scalars(), "handled"))
        found.update((row[0], row[1]) for row in connection.execute(states_of_open, given))
    return found


def unblock_followers(connection: Connection, scope: int, keys: Iterable[bytes], now: int, *, token: str, lease: int) -> None:
    """Make ready what these blocked; what the claim `token` took along stays in its hands until `lease`."""
    for some in slices(keys):
        connection.execute(unblock, {"scope": scope, "keys": some, "token": token, "lease": lease, "now": now})
