"""One event, or one raw event for a backlog, in a call of its own: what a client sends that has no batches to form."""

from __future__ import annotations

from pydantic import Field

from headrace.wire.base import Wire
from headrace.wire.custody.events import EventItem, ItemStatus


class OneEvent(Wire):
    """POST /execution/triggers/{id}/event: an event that this trigger fired on, and perhaps others; `epochs` as in an `EventBatch`."""

    epochs: dict[int, int]
    event: EventItem


class OneSpill(Wire):
    """POST /execution/triggers/{id}/backlog: one raw event to keep for this trigger. Kept once for each (stream, lane, position).

    Without a position, `delivery_id` stands for it; without either, each call keeps it once more.
    """

    epoch: int
    stream: str
    lane: str
    position: int | None = None
    delivery_id: str | None = Field(default=None, min_length=1, max_length=200)
    raw: str = Field(min_length=1)


class OneStored(Wire):
    """What became of it: `stored`, or a `duplicate` of what is stored already. Anything else is a problem."""

    status: ItemStatus
