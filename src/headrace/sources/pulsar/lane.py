"""One partition as a lane: its delivered, answered and acknowledged messages. Pure: no client and no clock.

Invariants:
- A message is delivered once in an opening, and ids rise, whatever the client delivers again after a reconnect.
- The acknowledged id never passes the *floor*, the first failed message.
- One acknowledgement at a time is not confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.core.ledger.outcome import AdvanceItem


class MessageId(NamedTuple):
    """The id of a message in its partition. Ids rise in this order. The index in the batch is -1 without a batch."""

    ledger: int
    entry: int
    batch_index: int


class Delivered(NamedTuple):
    """The broker payload of a raw event. `client_id` is its id as the client has it, which acknowledges a part of a batch only with it."""

    lane: Lane
    id: MessageId
    client_id: Any


class Lane:
    """A partition, or a topic without partitions. `name` is its topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: MessageId | None = None
        """The id up to which messages are acknowledged to the client."""
        self.confirmed: MessageId | None = None
        """The id up to which the broker has received acknowledgements."""
        self._delivered: MessageId | None = None
        self._floor: MessageId | None = None
        self._session: str | None = None
        self._acked_ms = 0

    @property
    def waits(self) -> bool:
        """Whether an acknowledgement is not confirmed."""
        return self.sent != self.confirmed

    def deliver(self, id: MessageId) -> bool:
        """Record a delivery. Return False if the message was delivered before."""
        if self._delivered is not None and id <= self._delivered:
            return False
        self._delivered = id
        return True

    def answer(self, batch: Sequence[AdvanceItem]) -> Delivered | None:
        """Record the answers to a batch. Return the message up to which to acknowledge, or None if there is nothing to acknowledge."""
        target: Delivered | None = None
        for item in batch:
            payload: Delivered = item.broker_payload
            if self.confirmed is not None and payload.id <= self.confirmed:
                continue
            if item.outcome.failed:
                self._floor = payload.id if self._floor is None else min(self._floor, payload.id)
            elif self._floor is None or payload.id < self._floor:
                target = payload
        return target

    def observe(self, consumer: Mapping[str, Any]) -> bool:
        """Compare what the broker says of the consumer with the last look. Return whether it has received the waiting acknowledgement.

        The client acknowledges after a reconnect what it had not sent before, and the broker counts the consumer as a new one.
        """
        session, acked_ms = str(consumer.get("connectedSince")), int(consumer.get("lastAckedTimestamp", 0))
        if session != self._session:
            self._session, self._acked_ms = session, 0
        if acked_ms <= self._acked_ms:
            return False
        self._acked_ms, self.confirmed = acked_ms, self.sent
        return True
