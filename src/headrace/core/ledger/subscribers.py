"""The readers and declared triggers of one shared stream, by state. It has no entries."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.ledger.obligations import PendingEvent, Subscriber


class SubscriberRegistry:
    """The readers of one shared stream, each in one of three states, and the declared triggers.

    `reading` readers queue published entries. `offline` readers are registered, and published entries are spilled for them. `leaving`
    readers have left, and their bound items may still be confirmed.
    """

    __slots__ = ("_owed", "declared", "leaving", "offline", "reading")

    def __init__(self) -> None:
        self.reading: dict[Subscriber, None] = {}
        self.offline: dict[Subscriber, None] = {}
        self.leaving: dict[Subscriber, None] = {}
        self.declared: tuple[int, ...] = ()
        self._owed: tuple[int, ...] | None = ()

    @property
    def owed(self) -> tuple[int, ...]:
        """The triggers, in order, that owe an answer to the next raw event."""
        # Computed on demand, not at each change: a thousand triggers join before the first raw event.
        if self._owed is None:
            readers = (reader.trigger_id for readers in (self.reading, self.offline) for reader in readers)
            self._owed = tuple(sorted((*self.declared, *readers)))
        return self._owed

    def add(self, reader: Subscriber) -> None:
        """Add a new reader. A registered one is offline."""
        (self.offline if reader.registered else self.reading)[reader] = None
        self._owed = None

    def declare(self, trigger_ids: tuple[int, ...]) -> None:
        """Set the declared triggers. They count as acked for later entries without an obligation of theirs."""
        self.declared = trigger_ids
        self._owed = None

    def remove(self, reader: Subscriber) -> None:
        """Remove a reader."""
        for readers in (self.reading, self.offline, self.leaving):
            readers.pop(reader, None)
        self._owed = None

    def mark_offline(self, reader: Subscriber) -> None:
        """Mark a registered reader as offline."""
        self.reading.pop(reader, None)
        self.offline[reader] = None

    def mark_online(self, reader: Subscriber) -> None:
        """Mark an offline reader as reading again. Any other reader is unchanged."""
        if reader in self.offline:
            del self.offline[reader]
            self.reading[reader] = None

    def overdue(self, now: float, timeout: float) -> list[Subscriber]:
        """Return the readers, also leaving ones, that have owed an answer for longer than `timeout`."""
        return [reader for reader, due in self.due(timeout) if due <= now]

    def deadline(self, timeout: float) -> float | None:
        """Return when the next reader is overdue, or None if no reader owes an answer."""
        return min((due for _, due in self.due(timeout)), default=None)

    def due(self, timeout: float) -> Iterator[tuple[Subscriber, float]]:
        """Yield the readers that owe an answer, also leaving ones, and when each is overdue."""
        for readers in (self.reading, self.offline, self.leaving):
            for reader in readers:
                due = reader.due(timeout)
                if due is not None:
                    yield reader, due

    def before(self, entry: PendingEvent) -> list[Subscriber]:
        """Return the readers for which `entry` is open or queued. Linear in their queues."""
        return [reader for readers in (self.reading, self.offline) for reader in readers if reader.has_not_ended(entry)]
