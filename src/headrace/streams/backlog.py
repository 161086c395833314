"""The durable backlog of one trigger, as a shared stream uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.core.ledger.outcome import Answer
from headrace.triggers.raw_event import Message

__all__ = ["Answer", "Backlog", "BacklogEntry"]


class BacklogEntry(NamedTuple):
    """One stored raw event. `raw` is the text that was spilled. `number` increases in the order of storage.

    `stream` is the one that its trigger read then, which may be another than now. With `redriven`, a dead letter stands behind it.
    `attempts` counts its failures before it was stored. `decoded` is the message of a text whose value was malformed, decoded again.
    """

    number: int
    stream: str
    lane: str
    position: int | None
    raw: str
    attempts: int = 0
    decoded: Message | None = None
    redriven: bool = False


class Backlog(Protocol):
    """The stored raw events of one trigger. The calls retry while the API is unavailable; their errors end the filter's turn."""

    async def fetch(self, after: int, limit: int) -> Sequence[BacklogEntry]:
        """Return the oldest entries with a number above `after`, at most `limit`; empty at the end of the backlog."""
        ...

    async def settle(self, settled: Sequence[tuple[int, Answer]]) -> None:
        """Delete the entries `(number, answer)` durably. An unknown number changes nothing."""
        ...
