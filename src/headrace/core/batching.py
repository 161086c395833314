"""Batch policies: which events of a pipeline share a run, and when it is due. Every event is in exactly one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Debounce:
    """A run takes events up to a pause of `seconds` without a new one, or `max_events` events."""

    seconds: float
    max_events: int = 10_000

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.max_events < 1:
            raise ValueError("a Debounce has seconds > 0 and max_events >= 1")


@dataclass(frozen=True, slots=True)
class Window:
    """A run takes `size` events, or fewer once the first of them is held for `seconds` (None: no limit)."""

    size: int
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or (self.seconds is not None and self.seconds <= 0):
            raise ValueError("a Window has size >= 1 and, where it is given, seconds > 0")


BatchPolicy: TypeAlias = Literal["micro", "each"] | Debounce | Window


def due_batches(policy: BatchPolicy, held: int, first: int, last: int, now: int) -> list[int]:
    """Return the sizes of the runs that are due, of the oldest of `held` events first.

    `first` and `last` are when the oldest and the newest of them came, `now` is the scope's clock (µs).
    """
    if not held:
        return []
    if policy == "micro":
        return [held]
    if policy == "each":
        return [1] * held
    if isinstance(policy, Debounce):
        runs = [policy.max_events] * (held // policy.max_events)
        left = held % policy.max_events
        return [*runs, left] if left and now - last >= policy.seconds * _MICROS else runs
    runs = [policy.size] * (held // policy.size)
    left = held % policy.size
    waited_out = policy.seconds is not None and now - first >= policy.seconds * _MICROS
    return [*runs, left] if left and waited_out and not runs else runs


def policy_name(policy: BatchPolicy) -> str:
    """Return the policy as text, for the API and for users."""
    return policy if isinstance(policy, str) else repr(policy)
