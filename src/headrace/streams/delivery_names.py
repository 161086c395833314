"""Names for deliveries that have no position: the ledger's own, so that equal messages are told apart."""

from __future__ import annotations

from uuid import uuid4

from headrace.core.dead_letter_ids import backlog_delivery_id
from headrace.core.ledger.obligations import PendingBacklogEvent, PendingEvent


class DeliveryIds:
    """The names of one opening of a stream: a random id of the opening, and the order of publication in it."""

    def __init__(self) -> None:
        self._opening = uuid4().hex

    def of(self, entry: PendingEvent) -> str | None:
        """Return the name of a delivery, the same for as long as it is known, or None if its position names it."""
        if entry.position is not None:
            return None
        if isinstance(entry, PendingBacklogEvent) and entry.number is not None:
            return backlog_delivery_id(entry.number)
        return self.at(entry.order if entry.order >= 0 else -2 - entry.order)

    def at(self, order: int) -> str:
        """Return the name of the delivery that was published as number `order`."""
        return f"{self._opening}-{order}"
