"""The lanes of one stream: which messages were delivered, answered and acknowledged, and what is missing. Pure: no client and no clock.

Invariants:
- A position of a lane is delivered once in a stream. What the server delivers again is skipped.
- The consumer numbers its deliveries without a gap. A gap means that another program got messages of this consumer.
- The acknowledged position never passes the *floor*, the first failed message.

A *sequence* is the number of a message in its stream, and the position of its raw event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamError, UpstreamFenced

UNKNOWN: Final = -1
ACK_TOKENS: Final = 9
ACK_TOKENS_WITH_DOMAIN: Final = 11


class Origin(NamedTuple):
    """What the server says of a delivered message, in the subject to which it is acknowledged."""

    deliveries: int
    sequence: int
    consumer_sequence: int
    time_ns: int
    waiting: int
    """How many messages of the lane follow that are not delivered yet."""


class Delivered(NamedTuple):
    """The broker payload of a raw event."""

    lane: Lane
    position: int
    reply: str


class Answers(NamedTuple):
    """The messages to acknowledge: each reply, or only the last one if it stands for those before it."""

    last: int
    replies: Sequence[str]


class Lane:
    """One subject filter with its consumer."""

    __slots__ = (
        "_outstanding",
        "acks_each",
        "committed",
        "consumer",
        "consumer_sequence",
        "covers_stream",
        "created",
        "delivered",
        "end",
        "floor",
        "lost",
        "name",
        "seen",
        "subject",
        "waiting",
    )

    def __init__(self, name: str, subject: str, consumer: str, *, acks_each: bool = False, covers_stream: bool = False) -> None:
        self.name = name
        self.subject = subject
        self.consumer = consumer
        self.acks_each = acks_each
        """Whether each message must be acknowledged, as in a work queue. Otherwise an acknowledgement includes all before it."""
        self.covers_stream = covers_stream
        """Whether every message of the stream is of this lane."""
        self.created = ""
        """When the consumer was created."""
        self.consumer_sequence = 0
        """The number of the last delivery of the consumer."""
        self.delivered = 0
        """The sequence of the last delivered message."""
        self.seen = 0
        """The sequence up to which no message of the lane is undelivered, or UNKNOWN."""
        self.committed = 0
        """The acknowledged sequence, or 0."""
        self.lost = 0
        """The last sequence that was removed before this stream was opened, and that no reader got, or 0."""
        self.floor: int | None = None
        """The sequence of the first failed message."""
        self.end = 0
        """The sequence of the last message of the lane, as far as known."""
        self.waiting = 0
        """How many messages of the lane were not delivered, as of the last message or look."""
        self._outstanding: deque[int] = deque()

    def begin(self, created: str, *, floor: int, seen: int, waiting: int) -> None:
        """Record that the consumer has acknowledged up to `floor`, and delivers the messages after it."""
        self.created = created
        self.delivered = self.committed = floor
        self.seen = seen
        self.expect(waiting)

    def expect(self, waiting: int) -> None:
        """Record how many messages are not delivered yet."""
        self.waiting = waiting
        self.end = max(self.end if waiting else 0, self.delivered + waiting)

    def receive(self, origin: Origin) -> bool:
        """Record a delivery. Return False if the message was delivered before.

        Raises:
            UpstreamFenced: The consumer was reset or created again, so another reader has taken over.
            StreamError: Another program got messages of this consumer.
        """
        number, expected = origin.consumer_sequence, self.consumer_sequence + 1
        if number < expected:
            raise UpstreamFenced(
                f"Another reader has taken over consumer {self.consumer}: its deliveries are numbered from the start again."
            )
        if number > expected:
            raise StreamError(
                f"Deliveries {expected} to {number - 1} of consumer {self.consumer} went to another program.",
                hint="Stop the program that reads with this consumer, or give the upstream another durable name.",
            )
        self.consumer_sequence = number
        if origin.sequence <= self.delivered:
            return False
        self.delivered = origin.sequence
        self.seen = max(self.seen, origin.sequence)
        self._outstanding.append(origin.sequence)
        self.expect(origin.waiting)
        return True

    @property
    def committed_position(self) -> int | None:
        """The sequence that is acknowledged or lost at the server, or None if there is none."""
        return max(self.committed, self.lost) or None

    @property
    def end_position(self) -> int | None:
        """The sequence of the last message of the lane, or None if it is empty."""
        return max(self.end, self.lost) or None

    @property
    def oldest(self) -> int | None:
        """The sequence of the oldest message that is delivered and not acknowledged, or None."""
        return self._outstanding[0] if self._outstanding else None

    def missing_before(self, sequence: int) -> tuple[int, int] | None:
        """Return the first and last sequence that the server no longer has before `sequence`, and that were not delivered."""
        if self.seen == UNKNOWN or self.seen + 1 >= sequence:
            return None
        first, self.seen = self.seen + 1, sequence - 1
        return first, sequence - 1

    def answer(self, batch: Sequence[AdvanceItem]) -> Answers | None:
        """Record the answers to a batch. Return what to acknowledge, or None if there is nothing to acknowledge."""
        clean: list[Delivered] = []
        for item in batch:
            payload: Delivered = item.broker_payload
            if item.outcome.failed and payload.position > self.committed:
                self.floor = payload.position if self.floor is None else min(self.floor, payload.position)
            if payload.position > self.committed and (self.floor is None or payload.position < self.floor):
                clean.append(payload)
        if not clean:
            return None
        return Answers(clean[-1].position, [payload.reply for payload in (clean if self.acks_each else clean[-1:])])

    def confirm(self, answers: Answers) -> None:
        """Record that the server has stored the acknowledgement."""
        self.committed = max(self.committed, answers.last)
        while self._outstanding and self._outstanding[0] <= self.committed:
            self._outstanding.popleft()


def parse_origin(reply: str) -> Origin | None:
    """Return what the subject of an acknowledgement says, or None for another subject."""
    tokens = reply.split(".")
    if tokens[:2] != ["$JS", "ACK"] or not (len(tokens) == ACK_TOKENS or len(tokens) >= ACK_TOKENS_WITH_DOMAIN):
        return None
    first = 4 if len(tokens) == ACK_TOKENS else 6
    try:
        return Origin(*map(int, tokens[first : first + 5]))
    except ValueError:
        return None
