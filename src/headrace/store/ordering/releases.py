"""Release the followers of handled events in slices. `ordering_releases` has the work that is left to later transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.store.dialects.statements import BulkInsert, DriverStatement, Runs
from headrace.store.ordering.statements import slices
from headrace.store.tables.ordering import ordering_releases

RELEASED_EVENTS: Final = 1_000
"""Maximum followers that one transaction releases."""
unblock = DriverStatement(
    """
UPDATE ordering_events SET
    state = CASE WHEN claim = :token THEN 'claimed' ELSE 'ready' END,
    due = CASE WHEN claim = :token THEN :lease ELSE :now END
WHERE +scope_id = :scope AND state = 'blocked' AND leader_key IN :keys
""",
    keys="bytea",
)
_many_blocked = DriverStatement(
    "SELECT count(*) FROM (SELECT 1 FROM ordering_events "
    "WHERE +scope_id = :scope AND leader_key IN :keys AND state = 'blocked' LIMIT :limit) AS blocked",
    keys="bytea",
)
_unblock_slice = DriverStatement(
    """
UPDATE ordering_events SET
    state = CASE WHEN claim = :token THEN 'claimed' ELSE 'ready' END,
    due = CASE WHEN claim = :token THEN :lease ELSE :now END
WHERE +scope_id = :scope AND seq IN (
    SELECT seq FROM ordering_events
    WHERE +scope_id = :scope AND leader_key = :key AND position > :released AND state = 'blocked' ORDER BY position LIMIT :limit
) RETURNING position
"""
)
waiting_releases = DriverStatement(
    "SELECT key, number FROM ordering_releases WHERE scope_id = :scope AND state = 'waiting' ORDER BY number, key"
)
cycles = DriverStatement(
    "SELECT key, number, members FROM ordering_releases WHERE scope_id = :scope AND state = 'cycle' ORDER BY number, key"
)
# An event released long after its leader's release may find the leader handled meanwhile. Earlier siblings may still be
# blocked.
unblock_released = DriverStatement(
    """
UPDATE ordering_events SET state = 'ready', due = :now
WHERE +scope_id = :scope AND seq IN :seqs AND state = 'blocked' AND NOT EXISTS (
    SELECT 1 FROM ordering_events AS leader
    WHERE +leader.scope_id = :scope AND leader.key = ordering_events.leader_key AND leader.state <> 'skipped'
) AND NOT EXISTS (
    SELECT 1 FROM ordering_releases AS release
    WHERE release.scope_id = :scope AND release.state = 'blocked' AND release.key = ordering_events.leader_key
)
""",
    seqs="bigint",
)
_blocked_releases = DriverStatement(
    "SELECT key, released, claim FROM ordering_releases WHERE scope_id = :scope AND state = 'blocked' ORDER BY number, key LIMIT :limit"
)
_is_releasing = DriverStatement("SELECT 1 FROM ordering_releases WHERE scope_id = :scope AND key = :key AND state = 'waiting'")
end_releases = DriverStatement("DELETE FROM ordering_releases WHERE scope_id = :scope AND state = :state AND key IN :keys", keys="bytea")
_move_release = DriverStatement(
    "UPDATE ordering_releases SET released = :released WHERE scope_id = :scope AND state = 'blocked' AND key = :key"
)
_last_release = DriverStatement("SELECT coalesce(max(number), 0) FROM ordering_releases WHERE scope_id = :scope AND state = 'blocked'")
set_releasing = DriverStatement(
    "UPDATE ordering_scopes SET releasing = CASE WHEN EXISTS (SELECT 1 FROM ordering_releases WHERE scope_id = :scope) THEN 1 ELSE 0 END "
    "WHERE id = :scope"
)
add_releases = BulkInsert(ordering_releases)


def is_releasing(connection: Runs, scope: int, key: bytes) -> bool:
    """Return whether followers of this event wait only for `release_some`."""
    return bool(_is_releasing(connection, scope=scope, key=key).all())


def unblock_followers(connection: Runs, scope: int, keys: Iterable[bytes], now: int, *, token: str, lease: int) -> None:
    """Make the followers of these events ready.

    Events that the claim `token` includes stay claimed until `lease`. Large numbers of followers are recorded for
    `release_some`, which runs once immediately.
    """
    for some in slices(keys):
        ((follower_count,),) = _many_blocked(connection, scope=scope, keys=some, limit=RELEASED_EVENTS + 1).all()
        if follower_count > RELEASED_EVENTS:
            end_releases(connection, scope=scope, state="blocked", keys=some)
            ((last,),) = _last_release(connection, scope=scope).all()
            add_releases(connection, [(scope, key, "blocked", last + 1, 0, token, None) for key in some])
            set_releasing(connection, scope=scope)
            release_some(connection, scope, now, lease)
        elif follower_count:
            unblock(connection, scope=scope, keys=some, token=token, lease=lease, now=now)


def release_some(connection: Runs, scope: int, now: int, lease: int) -> bool:
    """Make ready some events that handled events blocked, in order. Return False if none were left."""
    room, done = RELEASED_EVENTS, list[bytes]()
    for key, released, token in _blocked_releases(connection, scope=scope, limit=RELEASED_EVENTS).all():
        parameters = {"scope": scope, "key": key, "released": released, "token": token, "lease": lease, "now": now, "limit": room}
        moved = sorted(_unblock_slice(connection, **parameters).scalars())
        if len(moved) == room:
            _move_release(connection, scope=scope, key=key, released=moved[-1])
            room = 0
            break
        room -= len(moved)
        done.append(key)
    if done:
        end_releases(connection, scope=scope, state="blocked", keys=done)
        set_releasing(connection, scope=scope)
    return bool(done) or room < RELEASED_EVENTS
