"""Store subscriber sets: the triggers that owe answers to the same range of a stream.

Each set is stored as the difference from the previous one, and old sets are merged. Invariant of merging: after each
transaction, each trigger was owed as many raw events as before. The next subscriber set takes over the number read. A
trigger that joined meanwhile is recorded as owed that many fewer. A trigger that departed is recorded as owed its
number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import nsmallest
from secrets import token_bytes

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from headrace.core.ledger.subscriber_sets import DIGEST_BYTES, EMPTY, digest_of, subscriber_set_digest
from headrace.errors import ApiRefused
from headrace.store.db.slices import size_of, take_slice
from headrace.store.dialects.statements import ResultRow, Upsert, ValuesQuery, in_list, rows_among
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import recorded_streams, subscriber_sets, trigger_answers
from headrace.wire.custody.receipts import SubscriberSetDefinition

MAX_UNMERGED_SETS = 64
"""Subscriber sets of one stream that are not merged, because receipts in flight name the newest."""

MAX_CHANGED_MEMBERS = 2_000
"""Maximum triggers for which one transaction records a difference from their subscriber sets."""

MERGED_BYTES = 2 * 1024 * 1024
"""Maximum bytes of member ids, as text, that one transaction reads or writes to merge subscriber sets.

It merges at least two.
"""

ENDED_RUNS = 0
"""The trigger id that stands in `trigger_answers` for the triggers of all ended task runs."""

ANSWERS = ("fired", "rejected", "spilled", "dead_lettered", "failed")
SETTLED = ("settled_fired", "settled_filtered", "settled_rejected", "settled_dead_lettered", "settled_dropped")
NONE = dict.fromkeys(("read", *ANSWERS, *SETTLED, "redriven"), 0)

_streams = select(recorded_streams.c.stream, recorded_streams.c.id).where(in_list(recorded_streams.c.stream, "names"))
_known = ValuesQuery(
    {"stream_id": "bigint", "digest": "bytea"},
    "SELECT k.id, k.stream_id, k.digest FROM given CROSS JOIN subscriber_sets k "
    "WHERE k.stream_id = given.stream_id AND k.digest = given.digest",
)
_size = size_of(subscriber_sets.c.joined, subscriber_sets.c.departed)
_insert = insert(subscriber_sets)
_add_read = (
    update(subscriber_sets)
    .where(subscriber_sets.c.id == bindparam("subscriber_set_id"))
    .values(read=subscriber_sets.c.read + bindparam("more"))
)
_there = select(triggers.c.id).where(in_list(triggers.c.id, "ids"))
_add_owed = Upsert(trigger_answers, ("stream_id", "trigger_id"), lambda new: {"read": trigger_answers.c.read + new["read"]})

SubscriberSetKey = tuple[int, bytes]
"""A stream id and the digest of a subscriber set."""


def streams_of(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """Return the ids of streams with receipts, inserting the new ones."""
    unique = list(dict.fromkeys(names))
    ids = {row.stream: row.id for row in rows_among(connection, _streams, "names", unique)}
    new = [name for name in unique if name not in ids]
    if new:
        connection.execute(insert(recorded_streams), [{"stream": name} for name in new])
        ids |= {row.stream: row.id for row in rows_among(connection, _streams, "names", new)}
    return ids


def known_subscriber_sets(connection: Connection, keys: Iterable[SubscriberSetKey]) -> dict[SubscriberSetKey, int]:
    """Return the ids of the subscriber sets that are defined. Unknown ones are omitted."""
    return {(row.stream_id, bytes(row.digest)): row.id for row in _known(connection, list(dict.fromkeys(keys)))}


def whole_subscriber_sets(connection: Connection, members: dict[SubscriberSetKey, Sequence[int]]) -> dict[SubscriberSetKey, int]:
    """Return the ids of subscriber sets given with all their members, defining the new ones."""
    ids = known_subscriber_sets(connection, members)
    new = [key for key in members if key not in ids]
    if new:
        connection.execute(_insert, [_row(stream, digest, None, members[stream, digest]) for stream, digest in new])
        ids |= known_subscriber_sets(connection, new)
    return ids


def define(connection: Connection, definition: SubscriberSetDefinition) -> bool:
    """Store a subscriber set as the difference from its base. Return False if the base is unknown or no longer stored.

    Raises:
        ApiRefused: The digest does not match the members.
    """
    (stream_id,) = streams_of(connection, [definition.stream]).values()
    digest, base = bytes.fromhex(definition.digest), None if definition.base is None else bytes.fromhex(definition.base)
    ids = known_subscriber_sets(connection, [(stream_id, one) for one in (digest, base) if one is not None])
    if base is not None and (stream_id, base) not in ids:
        return False
    joined, departed = set(definition.joined), set(definition.departed)
    if digest_of(definition.digest) != subscriber_set_digest(
        joined, departed, EMPTY if definition.base is None else digest_of(definition.base)
    ):
        raise ApiRefused("The digest does not match the subscriber set.", status=422, problem="invalid")
    if (stream_id, digest) not in ids:
        base_id = None if base is None else ids[stream_id, base]
        connection.execute(_insert, [_row(stream_id, digest, base_id, joined, departed)])
    return True


def add_reads(connection: Connection, reads: Counter[int]) -> None:
    """Add to the number of raw events that subscriber sets were owed."""
    if reads:
        connection.execute(_add_read, [{"subscriber_set_id": subscriber_set, "more": n} for subscriber_set, n in reads.items()])


def digest_bytes(owed: Sequence[int]) -> bytes:
    """Return the digest of the subscriber set with these members."""
    return _digest_bytes(tuple(owed))


@lru_cache(1024)
def _digest_bytes(owed: tuple[int, ...]) -> bytes:
    return subscriber_set_digest(set(owed)).to_bytes(DIGEST_BYTES, "big")


@dataclass(slots=True)
class Owed:
    """Add up, over subscriber sets, how many raw events each trigger was owed.

    The cost of a set is its difference from the previous one.
    """

    members: set[int] = field(default_factory=set)
    read: int = 0
    beyond: Counter[int] = field(default_factory=Counter)
    _last: int | None = None
    _rows: dict[int, ResultRow] = field(default_factory=dict)

    def add(self, row: ResultRow) -> None:
        """Add the next subscriber set, in ascending order of ids."""
        self._rows[row.id] = row
        if row.base_id is not None and row.base_id == self._last:
            joined, departed = _members(row.joined), _members(row.departed)
        else:
            all_of = self.members_of(row.id)
            joined, departed = all_of - self.members, self.members - all_of
        if self.read:
            for trigger in joined:
                self.beyond[trigger] -= self.read
            for trigger in departed:
                self.beyond[trigger] += self.read
        self.members -= departed
        self.members |= joined
        self.read += row.read
        self._last = row.id

    def members_of(self, subscriber_set_id: int) -> set[int]:
        """Return the members of a subscriber set that was added."""
        path: list[ResultRow] = []
        step: int | None = subscriber_set_id
        while step is not None:
            path.append(self._rows[step])
            step = self._rows[step].base_id
        members: set[int] = set()
        for row in reversed(path):
            members -= _members(row.departed)
            members |= _members(row.joined)
        return members

    def totals(self) -> Iterator[tuple[int, int]]:
        """Yield each trigger and the number of raw events that it was owed."""
        for trigger in self.members | self.beyond.keys():
            yield trigger, self.beyond[trigger] + (self.read if trigger in self.members else 0)


def subscriber_sets_of(connection: Connection, stream_id: int) -> list[ResultRow]:
    """Return the subscriber sets of a stream in the order of their ids."""
    return list(
        connection.execute(select(subscriber_sets).where(subscriber_sets.c.stream_id == stream_id).order_by(subscriber_sets.c.id)).all()
    )


def old_subscriber_sets(connection: Connection, before: int, limit: int) -> int:
    """Merge the oldest subscriber sets of streams that have more than 2 * MAX_UNMERGED_SETS. Return how many rows changed.

    Age does not matter: a subscriber set that is used again is defined again.
    """
    del before
    many = (
        select(subscriber_sets.c.stream_id, func.count().label("n"))
        .group_by(subscriber_sets.c.stream_id)
        .having(func.count() > 2 * MAX_UNMERGED_SETS)
    )
    merged = 0
    for row in connection.execute(many.order_by(subscriber_sets.c.stream_id).limit(limit)).all():
        if merged < limit:
            merged += _merge(connection, row.stream_id, min(limit - merged, row.n - MAX_UNMERGED_SETS))
    return merged


def _merge(connection: Connection, stream_id: int, count: int) -> int:
    """Merge at most the `count` oldest subscriber sets of a stream into their successor. Return how many rows changed.

    A transaction merges subscriber sets that differ by at most MAX_CHANGED_MEMBERS members. If the first two differ by
    more, the first is changed towards the second.
    """
    ordered = select(subscriber_sets, _size).where(subscriber_sets.c.stream_id == stream_id).order_by(subscriber_sets.c.id)
    candidates = take_slice(connection, ordered, count + 1).rows
    if len(candidates) < 2:  # the first is larger than a slice
        candidates = list(connection.execute(ordered.limit(2)).all())
    first, second = candidates[:2]
    members = _members(first.joined)  # the first has no base
    differ = members ^ (((members if second.base_id else set[int]()) - _members(second.departed)) | _members(second.joined))
    if first.read and len(differ) > MAX_CHANGED_MEMBERS:
        return _approach(connection, first, members, differ)
    rows, owed = _mergeable(candidates)
    *old, heir = rows
    merged = [row.id for row in old]
    changed = _rebase(connection, stream_id, merged, owed.members_of, after=heir.id)
    if changed is not None:
        return changed
    whole = {"base_id": None, "joined": _text(owed.members), "departed": "[]", "read": owed.read}
    connection.execute(update(subscriber_sets).where(subscriber_sets.c.id == heir.id).values(**whole))
    connection.execute(delete(subscriber_sets).where(in_list(subscriber_sets.c.id, "ids")), {"ids": merged})
    _keep_beyond(connection, stream_id, owed.beyond)
    return len(merged)


def _mergeable(candidates: Sequence[ResultRow]) -> tuple[list[ResultRow], Owed]:
    """Return the first subscriber sets that one transaction merges, at least two, and their sum."""
    owed, rows, size = Owed(), list[ResultRow](), 0
    for row in candidates:
        size += row.bytes
        if len(rows) > 1 and size > MERGED_BYTES:
            break
        owed.add(row)
        if len(rows) > 1 and len(owed.beyond) > MAX_CHANGED_MEMBERS:
            owed = Owed()
            for one in rows:
                owed.add(one)
            break
        rows.append(row)
    return rows, owed


def _approach(connection: Connection, old: ResultRow, members: set[int], differ: set[int]) -> int:
    """Change a subscriber set towards the next one.

    Some triggers of `differ` join it or depart, and the numbers that they were owed are recorded. No receipt may name
    the changed set by its digest, so it gets a random one.
    """
    changed = _rebase(connection, old.stream_id, [old.id], lambda _: members, after=old.id)
    if changed is not None:
        return changed
    some = nsmallest(MAX_CHANGED_MEMBERS, differ)
    beyond = Counter({trigger: old.read if trigger in members else -old.read for trigger in some})
    values = {"joined": _text(members.symmetric_difference(some)), "digest": token_bytes(DIGEST_BYTES)}
    connection.execute(update(subscriber_sets).where(subscriber_sets.c.id == old.id).values(**values))
    _keep_beyond(connection, old.stream_id, beyond)
    return len(some)


def _rebase(
    connection: Connection, stream_id: int, bases: Sequence[int], members_of: Callable[[int], set[int]], *, after: int
) -> int | None:
    """Store later subscriber sets based on one of `bases` with all their members.

    Only sets after the subscriber set `after` are read. Return the number stored if there may be more than one
    transaction writes, or None if none is left.
    """
    later = (subscriber_sets.c.stream_id == stream_id, subscriber_sets.c.id > after, in_list(subscriber_sets.c.base_id, "ids"))
    written = size = 0
    for row in rows_among(connection, select(subscriber_sets).where(*later).order_by(subscriber_sets.c.id).limit(len(bases)), "ids", bases):
        whole = _text((members_of(row.base_id) - _members(row.departed)) | _members(row.joined))
        connection.execute(update(subscriber_sets).where(subscriber_sets.c.id == row.id).values(base_id=None, joined=whole, departed="[]"))
        written, size = written + 1, size + len(whole)
        if size > MERGED_BYTES:
            return written
    return written if written >= len(bases) else None


def _keep_beyond(connection: Connection, stream_id: int, beyond: Counter[int]) -> None:
    """Record the numbers that triggers were owed beyond those of the merged set. Triggers of ended runs share one row."""
    changed = {trigger: n for trigger, n in beyond.items() if n}
    there = {row.id for row in rows_among(connection, _there, "ids", changed)}
    sums: Counter[int] = Counter()
    for trigger, n in changed.items():
        sums[trigger if trigger in there else ENDED_RUNS] += n
    _add_owed(connection, [{**NONE, "stream_id": stream_id, "trigger_id": trigger, "read": n} for trigger, n in sorted(sums.items())])


def _row(stream_id: int, digest: bytes, base_id: int | None, joined: Iterable[int], departed: Iterable[int] = ()) -> dict[str, object]:
    texts = {"joined": _text(joined), "departed": _text(departed)}
    return {"stream_id": stream_id, "digest": digest, "base_id": base_id, "read": 0, **texts}


def _text(members: Iterable[int]) -> str:
    return msgspec.json.encode(sorted(set(members))).decode()


def _members(text: str) -> set[int]:
    return set(msgspec.json.decode(text, type=list[int]))
