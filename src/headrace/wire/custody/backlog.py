"""The backlog: raw events stored for a trigger that could not process them.

The event batch spills them. These calls read and settle them.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from headrace.wire.base import WireModel

Answer = Literal["fired", "filtered", "rejected", "dead_lettered"]
"""The final answer of a trigger to a raw event."""
GIVEN_UP: Final[tuple[Answer, ...]] = ("dead_lettered", "rejected")
"""The answers that make a dead letter, or open it again."""


class SpillItem(WireModel):
    """One raw event for the backlogs of these triggers, stored once for each (trigger, stream, lane, position)."""

    stream: str
    lane: str
    position: int
    raw: str
    triggers: list[int] = Field(min_length=1)


class BacklogItem(WireModel):
    """One stored raw event. `number` rises in the order of storing, which within a lane is the order of positions.

    With `redriven`, it is that of a redriven dead letter. Otherwise it was spilled, and no dead letter has it.
    """

    number: int
    stream: str
    lane: str
    position: int | None
    raw: str
    attempts: int = 0
    redriven: bool = False


class BacklogPage(WireModel):
    """GET /execution/triggers/{id}/backlog?after=&limit=: the oldest raw events first. `depth` is the size of the whole backlog."""

    items: list[BacklogItem]
    depth: int


class Settled(WireModel):
    """The answer to one raw event of the backlog. `reason` says why it is a dead letter again."""

    number: int
    answer: Answer
    reason: str | None = None


class SettleBacklog(WireModel):
    """POST /execution/triggers/{id}/backlog/settle: delete answered raw events. Missing ones are ignored."""

    epoch: int
    settled: list[Settled]
