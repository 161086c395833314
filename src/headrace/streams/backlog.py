"""The durable backlog of one trigger, as a shared stream reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.core.ledger.outcome import Answer

__all__ = ["Answer", "Backlog", "BacklogEntry"]


class BacklogEntry(NamedTuple):
    """One kept raw event. `raw` is the text that was spilled; `number` rises in the order of keeping.

    `attempts`: how often it was given up on before it was kept.
    """

    number: int
    lane: str
    position: int | None
    raw: str
    attempts: int = 0


class Backlog(Protocol):
    """What is kept for one trigger. The calls try again by themselves while the store is away; what they raise ends the filter's turn."""

    async def fetch(self, after: int, limit: int) -> Sequence[BacklogEntry]:
        """Return the oldest of those whose number is more than `after`, at most `limit`; empty: there are no more."""
        ...

    async def settle(self, settled: Sequence[tuple[int, Answer]]) -> None:
        """Delete these durably: `(number, answer)`. An unknown one changes nothing."""
        ...
