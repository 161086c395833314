"""One stream key as a lane: its delivered, answered and missing entries. Pure: no client and no clock.

Invariants:
- A position is delivered once in a stream, whatever is read again after the connection was lost.
- The committed position never passes a failed entry.
- Entries after a gap are delivered only by a stream that has delivered nothing of the lane before. So the gap is the committed position
  of an opening, and the audit names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from headrace.sources.redis.entry_ids import NO_ID, id_of

START_COUNT: Final = 32
MAX_COUNT: Final = 1_000
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024


class Arrival(Enum):
    """What to do with an entry that was read."""

    DELIVER = "deliver"
    SKIP = "skip"
    """It is delivered already, and not answered."""
    ACKNOWLEDGE = "acknowledge"
    """It is answered already, and pending again at the server."""
    HOLD = "hold"
    """It comes after a gap: the stream must open again before it."""


class Gap(NamedTuple):
    """Missing entries: those after the id `begin`, up to the position `end`."""

    begin: str
    end: int

    def __str__(self) -> str:
        return f"after {self.begin} up to {id_of(self.end)}"


class Answers(NamedTuple):
    """The answers to a batch: the last position, and the failed ones. `before_failed` is the one before the first of these, or None."""

    last: int
    failed: Sequence[int]
    before_failed: int | None


class Lane:
    """A stream key with its birthmark."""

    def __init__(self, key: str, mark: str, committed: int | None, read: str) -> None:
        self.key = key
        self.mark = mark
        self.name = f"{key}@{mark}"
        self.read = read
        """The id up to which entries are delivered or missing."""
        self.pending_after: str | None = NO_ID
        """The id after which delivered entries are read again, or None if all are."""
        self.gap: Gap | None = None
        self.is_held = False
        """Whether a gap waits for the answers to all that is delivered."""
        self.is_replaced = False
        """Whether the key was deleted."""
        self.count = START_COUNT
        """How many entries the next request reads."""
        self.unread: int | None = None
        """How many entries were never read, as of the last look, or None if that is unknown."""
        self._target = committed
        self._delivered: int | None = None
        self._answered: int | None = None
        self._stored: int | None = None
        self._failed: set[int] = set()
        self._committed = committed
        self._end: int | None = None
        self._is_at_end = False

    @property
    def is_fresh(self) -> bool:
        """Whether this stream has delivered nothing of the lane."""
        return self._delivered is None

    @property
    def is_drained(self) -> bool:
        """Whether all delivered entries are answered."""
        return self._delivered == self._answered

    @property
    def committed(self) -> int | None:
        """The position up to which all entries are answered or missing, or None if it is unknown."""
        is_complete = self._is_at_end and self.pending_after is None and self.gap is None
        if is_complete and self._delivered == self._stored and not self._failed:
            return self._end
        return self._committed

    @property
    def end(self) -> int | None:
        """The position of the last entry of the stream key, as of the last look, or None if it had none."""
        return self._end

    def arrive(self, position: int) -> Arrival:
        """Return what to do with an entry, and record that it is delivered if it is."""
        if self.is_delivered(position):
            is_answered = self._answered is not None and position <= self._answered and position not in self._failed
            return Arrival.ACKNOWLEDGE if is_answered else Arrival.SKIP
        if self.is_held or (self.gap is not None and position > self.gap.end):
            self.is_held = True
            return Arrival.HOLD
        self._delivered = position
        return Arrival.DELIVER

    def is_delivered(self, position: int) -> bool:
        """Return whether this stream has delivered an entry."""
        return self._delivered is not None and position <= self._delivered

    def looked(self, last: int, *, at_end: bool) -> None:
        """Record the position of the last entry ever added, and whether all entries up to it are read."""
        self._end = max(last, self._end or 0) or None
        self._is_at_end = at_end

    def missed(self, gap: Gap) -> None:
        """Record that entries are missing."""
        self.gap = gap if self.gap is None else Gap(self.gap.begin, max(gap.end, self.gap.end))

    def pass_gap(self) -> bool:
        """Pass the gap if this stream has delivered nothing of the lane. Otherwise hold the lane, and return False."""
        if self.gap is None:
            return False
        if not self.is_fresh:
            self.is_held = True
            return False
        self._committed = max(self._committed or 0, self.gap.end)
        self.gap = None
        return True

    def answer(self, answers: Answers) -> int | None:
        """Record answers. Return the position up to which all entries are answered, or None if it is unknown."""
        if not self._failed:
            target = answers.last if not answers.failed else answers.before_failed
            if target is not None:
                self._target = max(self._target or 0, target)
        self._failed.update(answers.failed)
        self._answered = max(self._answered or 0, answers.last)
        return self._target

    def commit(self, position: int | None, last: int) -> None:
        """Record that the server has stored the committed id, and the answers up to `last`."""
        if position is not None:
            self._committed = max(self._committed or 0, position)
        self._stored = max(self._stored or 0, last)

    def resume(self, read: str) -> None:
        """Record that the connection was lost: delivered entries are read again, and skipped."""
        self.read = read
        self.pending_after = NO_ID
        self._is_at_end = False

    def size_next(self, entries: int, size: int, lanes: int) -> None:
        """Choose how many entries the next request reads, by the size of the last ones and the number of lanes."""
        if entries:
            fitting = MAX_BATCH_BYTES // lanes // max(1, size // entries)
            self.count = max(1, min(fitting, 2 * self.count, MAX_COUNT))
