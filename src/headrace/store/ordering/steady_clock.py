"""The steady clock of a scope, by which events wait: a wall clock that is set gives up no leader early, and none late.

`ordering_scopes.age` is its last moment. It counts microseconds and never goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from typing_extensions import override

from headrace.store.db.ages import MAX_GAP, AgeClock
from headrace.store.ordering.statements import ScopeRow


class ScopeClock(Protocol):
    """The steady clock of one scope or of several."""

    def __call__(self, scope: ScopeRow, now: int) -> int:
        """Return the time of a scope, given its row and the time of the wall clock."""
        ...

    def counted(self) -> int | None:
        """Return the time as this process counts it on; None before it knows the scope."""
        ...


class DatabaseAge(ScopeClock):
    """The clock of the scopes in an api's database: the age of that database."""

    def __init__(self, ages: AgeClock) -> None:
        self._ages = ages

    @override
    def __call__(self, scope: ScopeRow, now: int) -> int:
        return self._ages.now(scope.age)

    @override
    def counted(self) -> int | None:
        return self._ages.now()


class OwnClock(ScopeClock):
    """The clock of a scope in a database that has no age. `ticks` is a steady clock in µs.

    It begins at the time of the wall clock. Time in which no process was there counts by the wall clock, at most MAX_GAP.
    """

    def __init__(self, ticks: Callable[[], int]) -> None:
        self._ticks = ticks
        self._offset: int | None = None

    @override
    def __call__(self, scope: ScopeRow, now: int) -> int:
        ticks = self._ticks()
        if self._offset is None:
            age = scope.age + min(max(now - scope.clock, 0), MAX_GAP) if scope.age else max(now, scope.clock)
        else:
            age = max(scope.age, self._offset + ticks)
        self._offset = age - ticks
        return age

    @override
    def counted(self) -> int | None:
        return None if self._offset is None else self._offset + self._ticks()
