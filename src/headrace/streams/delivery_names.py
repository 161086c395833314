"""Ids of deliveries without a position, so that equal messages can be distinguished."""

from __future__ import annotations

from uuid import uuid4

from headrace.core.dead_letter_ids import backlog_delivery_id
from headrace.core.ledger.obligations import PendingBacklogEvent, PendingEvent


class DeliveryIds:
    """The delivery ids of one opening of a stream: a random id of the opening, and the order of publication in it."""

    def __init__(self) -> None:
        self._opening = uuid4().hex

    def of(self, entry: PendingEvent) -> str | None:
        """Return the id of a delivery, which is stable, or None if its position identifies it."""
        if entry.position is not None:
            return None
        if isinstance(entry, PendingBacklogEvent) and entry.number is not None:
            return backlog_delivery_id(entry.number)
        return self.at(entry.order if entry.order >= 0 else -2 - entry.order)

    def at(self, order: int) -> str:
        """Return the id of the delivery that was published as number `order`."""
        return f"{self._opening}-{order}"
