"""The roster: who owes an answer to the next raw event, and who is gone but owes one still. It knows no entries."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.ledger.obligations import PendingEvent, Subscriber


class SubscriberRegistry:
    """The readers of one shared stream, each in one of three places, and the declared triggers.

    `reading` get what is published; `away` are registered, and what is published is spilled for them; `leaving` have left, and what they
    derived may still be confirmed.
    """

    __slots__ = ("_owed", "away", "declared", "leaving", "reading")

    def __init__(self) -> None:
        self.reading: dict[Subscriber, None] = {}
        self.away: dict[Subscriber, None] = {}
        self.leaving: dict[Subscriber, None] = {}
        self.declared: tuple[int, ...] = ()
        self._owed: tuple[int, ...] | None = ()

    @property
    def owed(self) -> tuple[int, ...]:
        """The triggers, in order, that owe an answer to the next raw event."""
        # When it is asked for, and not at each change: a thousand join before the first raw event.
        if self._owed is None:
            readers = (reader.trigger_id for readers in (self.reading, self.away) for reader in readers)
            self._owed = tuple(sorted((*self.declared, *readers)))
        return self._owed

    def add(self, reader: Subscriber) -> None:
        """Put a new reader on the roster; a registered one is away."""
        (self.away if reader.registered else self.reading)[reader] = None
        self._owed = None

    def declare(self, trigger_ids: tuple[int, ...]) -> None:
        """Say who the declared triggers are."""
        self.declared = trigger_ids
        self._owed = None

    def remove(self, reader: Subscriber) -> None:
        """Take a reader off the roster."""
        for readers in (self.reading, self.away, self.leaving):
            readers.pop(reader, None)
        self._owed = None

    def mark_offline(self, reader: Subscriber) -> None:
        """Mark a registered reader as away."""
        self.reading.pop(reader, None)
        self.away[reader] = None

    def mark_online(self, reader: Subscriber) -> None:
        """Mark a reader that is away as reading again. Any other reader is unchanged."""
        if reader in self.away:
            del self.away[reader]
            self.reading[reader] = None

    def due(self, timeout: float) -> Iterator[tuple[Subscriber, float]]:
        """Yield the readers that owe an answer, also those that have left, and when each is overdue."""
        for readers in (self.reading, self.away, self.leaving):
            for reader in readers:
                due = reader.due(timeout)
                if due is not None:
                    yield reader, due

    def before(self, entry: PendingEvent) -> list[Subscriber]:
        """Return the readers that are at `entry` or have not come to it; linear in what waits for them."""
        return [reader for readers in (self.reading, self.away) for reader in readers if reader.has_not_ended(entry)]
