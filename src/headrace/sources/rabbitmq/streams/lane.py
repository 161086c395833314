"""One stream as a lane: which messages are delivered, answered and committed, and what is missing. Pure: no client and no clock.

Invariants:
- A position is delivered once in an opening, and positions rise.
- The committed position never passes the *floor*, the first failed message.
- Messages after removed ones are delivered only by an opening that has delivered nothing of the lane before. So what was removed lies
  before the committed position of an opening, and the audit names it.

The offset of a message in its stream is the position of its raw event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.core.ledger.outcome import AdvanceItem
from headrace.sources.rabbitmq.streams.start import NO_OFFSET


class Delivered(NamedTuple):
    """The broker payload of a raw event."""

    lane: Lane
    position: int


class Lane:
    """A stream with its birthmark. `committed` is the stored offset, or None before the first message or commit is known."""

    def __init__(self, stream: str, birthmark: str, committed: int | None) -> None:
        self.stream = stream
        self.birthmark = birthmark
        self.name = f"{stream}@{birthmark}"
        self.committed = committed
        self.is_held = False
        """Whether messages after the delivered ones are removed: the stream must open again."""
        self._delivered: int | None = None
        self._answered: int | None = None
        self._floor: int | None = None

    @property
    def expected(self) -> int | None:
        """The offset that follows the last delivered or committed one, or None if that is unknown."""
        last = self.committed if self._delivered is None else self._delivered
        return None if last is None else last + 1

    @property
    def committed_position(self) -> int | None:
        """The position up to which all messages are answered or removed, or None if there is none."""
        return None if self.committed is None or self.committed == NO_OFFSET else self.committed

    @property
    def is_drained(self) -> bool:
        """Whether all delivered messages are answered."""
        return self._delivered == self._answered

    def begin(self, offset: int) -> None:
        """Record that the first reading begins with the message of this offset."""
        self.committed = offset - 1

    def removed_to(self, offset: int) -> bool:
        """Record that the messages before `offset` are removed. Return False if the lane must be held: it has delivered some before."""
        if self._delivered is not None:
            self.is_held = True
            return False
        self.committed = offset - 1
        return True

    def deliver(self, offset: int) -> Delivered:
        """Record a delivery."""
        self._delivered = offset
        return Delivered(self, offset)

    def answer(self, batch: Sequence[AdvanceItem]) -> int | None:
        """Record the answers to a batch. Return the offset to commit, or None if there is nothing to commit."""
        target: int | None = None
        for item in batch:
            position = item.broker_payload.position
            if self.committed is not None and position <= self.committed:
                continue
            if item.outcome.failed:
                self._floor = position if self._floor is None else min(self._floor, position)
            elif self._floor is None or position < self._floor:
                target = position
            self._answered = max(position, self._answered or 0)
        return target

    def confirm(self, offset: int) -> None:
        """Record that the server has stored a commit."""
        self.committed = offset if self.committed is None else max(self.committed, offset)
