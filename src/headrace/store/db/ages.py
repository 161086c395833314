"""Measure the age of data by steady clocks: no retention may depend on a wall clock that can be set.

`age` counts microseconds while an API server runs, by its steady clock. Downtime counts for at most MAX_GAP. A mark
records the head of the log and the wall clock at an age. Between two marks the wall clock gives the age, so the error
is at most one interval.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select

from headrace.store.db.meta import log_end
from headrace.store.tables.base import age_marks

MAX_GAP: Final = 86_400_000_000
"""Maximum µs that downtime counts. After a longer gap, the clock may as well have been set forward."""
MIN_INTERVAL: Final = 60_000_000
"""Microseconds after which the last mark is outdated."""
MARK_INTERVAL: Final = 3_600_000_000
"""Minimum µs between two marks.

Only the last mark may be closer: it is replaced until it is this far from the previous one.
"""

KEY_RETENTIONS: Final = 4
"""The key of an event is stored this many times as long as the event."""

_M = age_marks.c


class AgeLimit(NamedTuple):
    """The limits of the data that is old enough to delete. Times in microseconds.

    Log: events up to the seq `head`, and those up to `next_head` that were received before `received`. Keys of
    deleted events: up to the seq `keys`. All other data: what the wall clock dates before `before`.
    """

    head: int
    next_head: int
    received: int
    before: int
    keys: int = 0


class AgeClock:
    """The age of one database, as this process counts it. `ticks` is a steady clock in microseconds."""

    def __init__(self, ticks: Callable[[], int]) -> None:
        self._ticks = ticks
        self._lock = Lock()
        self._seen: tuple[int, int] | None = None

    def mark(self, connection: Connection, now: int) -> int:
        """Update the age within a work of the writer, and store a mark if the last one is outdated. Return the age."""
        marks = connection.execute(select(age_marks).order_by(_M.age.desc()).limit(2)).all()
        last = marks[0] if marks else None
        with self._lock:
            age = self._age(last, now)
            self._seen = (age, self._ticks())
        if last is None or age - last.age >= MIN_INTERVAL:
            if len(marks) == 2 and age - marks[1].age < MARK_INTERVAL:
                connection.execute(delete(age_marks).where(_M.age == marks[0].age))
            connection.execute(insert(age_marks).values(age=age, wall=now, head=log_end(connection)))
        return age

    def now(self, at_least: int = 0) -> int:
        """Return the age, counted since the last call of `mark` without a query. `mark` must have been called.

        The result is at least `at_least`, the age that another API server counted: a host's steady clock stops while
        the host is suspended.
        """
        with self._lock:
            if self._seen is None:
                raise AssertionError("the age of the database was never read")
            ticks = self._ticks()
            age = self._seen[0] + ticks - self._seen[1]
            if age < at_least:
                age, self._seen = at_least, (at_least, ticks)
            return age

    def _age(self, last: Row[Any] | None, now: int) -> int:
        known = 0 if last is None else int(last.age)
        if self._seen is None:
            return known if last is None else known + min(max(now - last.wall, 0), MAX_GAP)
        return max(known, self._seen[0] + self._ticks() - self._seen[1])


def old_enough(connection: Connection, age: int, now: int, retention: int) -> AgeLimit:
    """Return the limits of data older than `retention` (µs), at this `age` of the database and this wall time `now` (µs)."""
    bound = age - retention
    before = _last_mark(connection, bound)
    after = connection.execute(select(age_marks).where(_M.age > bound).order_by(_M.age).limit(1)).one_or_none()
    next_head = log_end(connection) if after is None else after.head
    if before is not None:
        head, received = before.head, before.wall + bound - before.age
    else:  # the first mark's wall clock dates anything older
        head, received = 0, (now if after is None else after.wall) - ((age if after is None else after.age) - bound)
    later = connection.execute(select(func.min(_M.wall)).where(_M.age > bound)).scalar_one()
    keys = _last_mark(connection, age - KEY_RETENTIONS * retention)
    wall = min(received, now - retention, received if later is None else later)
    return AgeLimit(head, next_head, received, wall, 0 if keys is None else keys.head)


def prune_marks(connection: Connection, age: int, retention: int) -> None:
    """Delete the marks that `old_enough` no longer reads at this `age`."""
    needed = select(func.max(_M.age)).where(_M.age <= age - KEY_RETENTIONS * retention).scalar_subquery()
    connection.execute(delete(age_marks).where(_M.age < needed))


def wall_of(age: ColumnElement[int]) -> ColumnElement[int]:
    """Return the wall time of an age, according to the last mark."""
    difference = select(_M.wall - _M.age).order_by(_M.age.desc()).limit(1).scalar_subquery()
    return age + difference


def _last_mark(connection: Connection, age: int) -> Row[Any] | None:
    """Return the last mark stored up to `age`, or None if there is none."""
    return connection.execute(select(age_marks).where(_M.age <= age).order_by(_M.age.desc()).limit(1)).one_or_none()
