"""What is recorded of a stretch of one lane before the broker is advanced: how each trigger answered it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from headrace.core.ledger.obligations import PendingEvent
from headrace.core.ledger.outcome import Kind

_KINDS: Final[tuple[Kind, ...]] = ("fired", "rejected", "spilled", "dead_lettered", "failed")


MAX_MARKS: Final = 20_000
"""Lanes of one stream whose marks are remembered."""


class TriggerAnswers(NamedTuple):
    """How one trigger answered the raw events of a stretch; what it was owed and is not counted here it filtered."""

    trigger_id: int
    fired: int = 0
    rejected: int = 0
    spilled: int = 0
    dead_lettered: int = 0
    failed: int = 0


class Receipt(NamedTuple):
    """A stretch of one lane that is about to be advanced.

    `after` is the position before it (None: the lane begins here), `last` its last, `read` how many raw events it is. `owed` are the
    triggers that had to answer all of it; `answers` are of those of them that did more than filter.
    """

    stream: str
    lane: str
    after: int | None
    last: int
    read: int
    owed: tuple[int, ...]
    answers: tuple[TriggerAnswers, ...]


class ReceiptBuilder:
    """Makes the receipts of one stream; knows how far lanes are recorded, so that nothing is counted twice.

    It remembers the marks of the `MAX_MARKS` lanes that went on last: of any other, `learn` the mark before its next receipt.
    """

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._marks: dict[str, int | None] = {}

    def knows(self, lane: str) -> bool:
        """Return whether the mark of the lane is known."""
        return lane in self._marks

    def learn(self, lanes: Iterable[str], marks: Mapping[str, int]) -> None:
        """Take in the marks of lanes that are not known; one that is not in `marks` has none."""
        for lane in lanes:
            if lane not in self._marks:
                self._remember(lane, marks.get(lane))

    def skipped(self, lane: str, committed: int | None, entries: Sequence[PendingEvent]) -> None:
        """Begin after `committed` where the upstream had a known lane as done further than is recorded: its first receipt leaves a gap.

        All of the `entries` are recorded, whatever the upstream says of `committed`.
        """
        mark, first = self._marks[lane], next((entry.position for entry in entries if entry.position is not None), None)
        if mark is not None and committed is not None and first is not None and mark < committed < first:
            self._remember(lane, committed)

    def receipts(self, lane: str, entries: Iterable[PendingEvent]) -> list[Receipt]:
        """Return the receipts of these entries of a known lane, in order: one for each range with the same owed triggers.

        Entries without a position, and those that are recorded already (they were redelivered), are left out.
        """
        after = self._marks[lane]
        made: list[Receipt] = []
        for owed, stretch in groupby(self._new(after, entries), lambda entry: entry.owed):
            run = list(stretch)
            last = run[-1].position or 0
            made.append(Receipt(self.stream, lane, after, last, len(run), owed, _summed(run)))
            after = last
        return made

    def recorded(self, receipt: Receipt) -> None:
        """Remember that this is durable."""
        self._marks.pop(receipt.lane, None)
        self._remember(receipt.lane, receipt.last)

    def _remember(self, lane: str, mark: int | None) -> None:
        self._marks[lane] = mark
        if len(self._marks) > MAX_MARKS:
            del self._marks[next(iter(self._marks))]

    @staticmethod
    def _new(mark: int | None, entries: Iterable[PendingEvent]) -> Iterable[PendingEvent]:
        for entry in entries:
            if entry.position is not None and (mark is None or entry.position > mark):
                mark = entry.position
                yield entry


def _summed(entries: Sequence[PendingEvent]) -> tuple[TriggerAnswers, ...]:
    totals: dict[int, dict[Kind, int]] = {}
    for entry in entries:
        for kind, who in entry.answers or ():
            for trigger_id in who:
                counts = totals.setdefault(trigger_id, {})
                counts[kind] = counts.get(kind, 0) + 1
    return tuple(TriggerAnswers(trigger_id, *(counts.get(kind, 0) for kind in _KINDS)) for trigger_id, counts in sorted(totals.items()))
