"""The outcome of one raw event: how the subscribers answered it, as its producer gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["fired", "rejected", "spilled", "dead_lettered", "failed"]
"""How a trigger answered a raw event. Triggers without an answer filtered it."""

Answer: TypeAlias = Literal["fired", "filtered", "rejected", "dead_lettered"]
"""The final answer of a trigger to a raw event of its backlog."""


@dataclass(frozen=True, slots=True)
class AdvanceOutcome:
    """The number of subscribers by their answer to one raw event; each subscriber is counted once.

    `acked`: it has moved on, and all its events of this raw event are durable; subscribers that the raw event does not match count too.
    `failed`: it did not answer in time, or left without reading it: redeliver. `rejected`: it refused the raw event permanently. `spilled`:
    the raw event is in its durable backlog.
    """

    acked: int
    failed: int
    rejected: int = 0
    spilled: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether no subscriber failed or rejected the raw event, and at least one acked it or has it in its backlog."""
        return not self.failed and not self.rejected and self.acked + self.spilled > 0


class AdvanceItem(NamedTuple):
    """One answered raw event: the `broker_payload` that the producer yielded with it, and the outcome."""

    broker_payload: Any
    outcome: AdvanceOutcome
