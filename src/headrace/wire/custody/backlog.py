"""The backlog: raw events kept durably for a trigger that could not take them. Spilled in the event batch; drained and settled here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headrace.wire.base import WireModel

Answer = Literal["fired", "filtered", "rejected", "dead_lettered"]
"""How a trigger answered a raw event in the end."""


class SpillItem(WireModel):
    """One raw event to keep for these triggers. Kept once for each (trigger, stream, lane, position), however often it is sent.

    Where the upstream gives no position, `delivery_id` stands for it; without either, each call keeps it once more.
    """

    stream: str
    lane: str
    position: int | None = None
    delivery_id: str | None = Field(default=None, min_length=1, max_length=200)
    raw: str
    triggers: list[int] = Field(min_length=1)


class BacklogItem(WireModel):
    """One kept raw event; `number` rises in the order of keeping, which within a lane is the order of positions."""

    number: int
    stream: str
    lane: str
    position: int | None
    raw: str
    attempts: int = 0


class BacklogPage(WireModel):
    """GET /execution/triggers/{id}/backlog?after=&limit=: the oldest first; `depth` is how many are kept in all."""

    items: list[BacklogItem]
    depth: int


class Settled(WireModel):
    """How one kept raw event was answered."""

    number: int
    answer: Answer


class SettleBacklog(WireModel):
    """POST /execution/triggers/{id}/backlog/settle: these are answered and go; one that is gone already changes nothing."""

    epoch: int
    settled: list[Settled]
