"""How a pipeline is fed: which of its events make up one run, and when. Every event is in exactly one run, whatever the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Debounce:
    """One run for what comes close together: once nothing has come for `seconds`, or `most` events are held."""

    seconds: float
    most: int = 10_000

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.most < 1:
            raise ValueError("a Debounce has seconds > 0 and most >= 1")


@dataclass(frozen=True, slots=True)
class Window:
    """One run for every `size` events; fewer only where the first of them has been held for `seconds` (None: never)."""

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
        runs = [policy.most] * (held // policy.most)
        left = held % policy.most
        return [*runs, left] if left and now - last >= policy.seconds * _MICROS else runs
    runs = [policy.size] * (held // policy.size)
    left = held % policy.size
    waited_out = policy.seconds is not None and now - first >= policy.seconds * _MICROS
    return [*runs, left] if left and waited_out and not runs else runs


def policy_name(policy: BatchPolicy) -> str:
    """Return the policy as it is told to the api and to people."""
    return policy if isinstance(policy, str) else repr(policy)
