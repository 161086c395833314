"""How old things are by steady clocks: no retention may depend on a wall clock that can be set.

`age` counts microseconds while an api is there, by its steady clock; of a time in which none was, at most MAX_GAP counts. Marks say how far
the log and the wall clock were at which age. Between two marks the wall clock tells them apart, so it is wrong by one interval at most.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select

from headrace.store.db.meta import log_head
from headrace.store.tables.base import age_marks

MAX_GAP: Final = 86_400_000_000
"""Microseconds that a time counts at most in which no api was there: as likely a clock was set forward meanwhile."""
MIN_INTERVAL: Final = 60_000_000
"""Microseconds after which the last mark is out of date."""
MARK_INTERVAL: Final = 3_600_000_000
"""Microseconds between two marks at least, but for the last: that moves until it is so far from the one before."""

KEY_RETENTIONS: Final = 4
"""The key of an event is kept so many times as long as the event itself."""

_M = age_marks.c


class AgeLimit(NamedTuple):
    """What is old enough to be deleted.

    Of the log: events up to the seq `head`, and those up to `next_head` that came before `received`; keys of deleted events up to the seq
    `keys`. Of all else, what the wall clock dates before `before`. Times in microseconds.
    """

    head: int
    next_head: int
    received: int
    before: int
    keys: int = 0


class AgeClock:
    """The age of one database, as this process counts it on. `ticks` is a steady clock in microseconds."""

    def __init__(self, ticks: Callable[[], int]) -> None:
        self._ticks = ticks
        self._lock = Lock()
        self._seen: tuple[int, int] | None = None

    def mark(self, connection: Connection, now: int) -> int:
        """Count on, within a work of the writer, and leave a mark where the last one is out of date; return the age."""
        marks = connection.execute(select(age_marks).order_by(_M.age.desc()).limit(2)).all()
        last = marks[0] if marks else None
        with self._lock:
            age = self._age(last, now)
            self._seen = (age, self._ticks())
        if last is None or age - last.age >= MIN_INTERVAL:
            if len(marks) == 2 and age - marks[1].age < MARK_INTERVAL:
                connection.execute(delete(age_marks).where(_M.age == marks[0].age))
            connection.execute(insert(age_marks).values(age=age, wall=now, head=log_head(connection)))
        return age

    def now(self, at_least: int = 0) -> int:
        """Return the age, counted on since the last call of `mark` without asking the database; there was one.

        It is `at_least` what another api counted: the steady clock of a host stands still while that is suspended.
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


def old_enough(connection: Connection, age: int, now: int, kept_for: int) -> AgeLimit:
    """Return what is older than `kept_for` (µs) at this `age` of the database, when its clock says `now`."""
    bound = age - kept_for
    before = _last_mark(connection, bound)
    after = connection.execute(select(age_marks).where(_M.age > bound).order_by(_M.age).limit(1)).one_or_none()
    next_head = log_head(connection) if after is None else after.head
    if before is not None:
        head, received = before.head, before.wall + bound - before.age
    else:  # older than the first mark is what its wall clock says
        head, received = 0, (now if after is None else after.wall) - ((age if after is None else after.age) - bound)
    later = connection.execute(select(func.min(_M.wall)).where(_M.age > bound)).scalar_one()
    keys = _last_mark(connection, age - KEY_RETENTIONS * kept_for)
    wall = min(received, now - kept_for, received if later is None else later)
    return AgeLimit(head, next_head, received, wall, 0 if keys is None else keys.head)


def forget_marks(connection: Connection, age: int, kept_for: int) -> None:
    """Delete the marks that `old_enough` does not read any more at this `age`."""
    needed = select(func.max(_M.age)).where(_M.age <= age - KEY_RETENTIONS * kept_for).scalar_subquery()
    connection.execute(delete(age_marks).where(_M.age < needed))


def wall_of(age: ColumnElement[int]) -> ColumnElement[int]:
    """Return what the wall clock says at an age, as far as the last mark tells."""
    difference = select(_M.wall - _M.age).order_by(_M.age.desc()).limit(1).scalar_subquery()
    return age + difference


def _last_mark(connection: Connection, age: int) -> Row[Any] | None:
    """Return the last mark that was left up to `age`."""
    return connection.execute(select(age_marks).where(_M.age <= age).order_by(_M.age.desc()).limit(1)).one_or_none()
