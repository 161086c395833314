"""Measure waiting times by a scope's steady clock, so that a wrong wall clock gives up leaders neither early nor late.

`ordering_scopes.age` is its last stored value. It counts microseconds and never decreases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from typing_extensions import override

from headrace.store.db.ages import MAX_GAP, AgeClock
from headrace.store.ordering.statements import ScopeRow


class ScopeClock(Protocol):
    """The steady clock of one or several scopes."""

    def __call__(self, scope: ScopeRow, now: int) -> int:
        """Return the time of a scope (µs), given its row and the wall time `now`."""
        ...

    def counted(self) -> int | None:
        """Return the time as this process counts it, or None before it knows the scope."""
        ...


class DatabaseAge(ScopeClock):
    """The clock of the scopes in an API server's database: the age of that database."""

    def __init__(self, ages: AgeClock) -> None:
        self._ages = ages

    @override
    def __call__(self, scope: ScopeRow, now: int) -> int:
        return self._ages.now(scope.age)

    @override
    def counted(self) -> int | None:
        return self._ages.now()


class OwnClock(ScopeClock):
    """The clock of a scope in a database without an age. `ticks` is a steady clock in µs.

    It begins at the wall time. Downtime of all processes counts by the wall clock, for at most MAX_GAP.
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
