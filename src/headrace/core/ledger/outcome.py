"""How the subscribers answered one raw event, and what a producer is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["fired", "rejected", "spilled", "dead_lettered", "failed"]
"""How a trigger answered a raw event; one that is not named filtered it."""

Answer: TypeAlias = Literal["fired", "filtered", "rejected", "dead_lettered"]
"""How a trigger answered a raw event of its backlog, in the end."""


@dataclass(frozen=True, slots=True)
class AdvanceOutcome:
    """How many subscribers answered one raw event, each counted once.

    `acked` moved past it, and all they made of it is durable (those that did not want it count here too); `failed` did not finish in time,
    or left without reading it: redeliver; `rejected` refused it for good: dead-letter; `spilled` have it in their durable backlog.
    """

    acked: int
    failed: int
    rejected: int = 0
    spilled: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether none failed, none rejected, and at least one acked or has it in its backlog."""
        return not self.failed and not self.rejected and self.acked + self.spilled > 0


class AdvanceItem(NamedTuple):
    """One answered raw event: what the producer gave with it, and the outcome."""

    broker_payload: Any
    outcome: AdvanceOutcome
