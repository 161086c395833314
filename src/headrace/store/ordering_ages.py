"""The steady clock of a scope, by which events wait: a wall clock that somebody sets gives up no leader early, and none late.

`ordering_scopes.age` is its last moment. It counts microseconds and never goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headrace.store.ages import MAX_GAP, AgeClock
from headrace.store.ordering_statements import Scope

ScopeClock: TypeAlias = Callable[[Scope, int], int]
"""Returns the steady time of a scope, given its row and the time of the wall clock."""


def scope_clock(ages: AgeClock) -> ScopeClock:
    """Return the clock of the scopes in an api's database: the age of that database."""
    return lambda scope, _: ages.now(scope.age)


class OwnClock:
    """The clock of a scope in a database that has no age. `ticks` is a steady clock in µs.

    It begins at the time of the wall clock. Time in which no process was there counts by the wall clock, at most MAX_GAP.
    """

    def __init__(self, ticks: Callable[[], int]) -> None:
        self._ticks = ticks
        self._offset: int | None = None

    def __call__(self, scope: Scope, now: int) -> int:
        """Return the time of the scope."""
        ticks = self._ticks()
        if self._offset is None:
            age = scope.age + min(max(now - scope.clock, 0), MAX_GAP) if scope.age else max(now, scope.clock)
        else:
            age = max(scope.age, self._offset + ticks)
        self._offset = age - ticks
        return age
