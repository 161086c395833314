"""Receipts: how each trigger answered a range of one lane, recorded before the broker is advanced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from headrace.core.ledger.obligations import PendingEvent
from headrace.core.ledger.outcome import Kind

_KINDS: Final[tuple[Kind, ...]] = ("fired", "rejected", "spilled", "dead_lettered", "failed")


MAX_MARKS: Final = 20_000
"""Lanes of one stream whose marks are in memory. A mark is the last recorded position of a lane."""


class TriggerAnswers(NamedTuple):
    """How one trigger answered the raw events of a range. It filtered all others."""

    trigger_id: int
    fired: int = 0
    rejected: int = 0
    spilled: int = 0
    dead_lettered: int = 0
    failed: int = 0


class Receipt(NamedTuple):
    """The answers to a range of one lane, before the lane is advanced.

    `after` is the position before the range, or None at the begin of the lane; `last` is its last position, and `read` its number of raw
    events. `owed` are the triggers that had to answer all of them; `answers` are of the triggers that did more than filter.
    """

    stream: str
    lane: str
    after: int | None
    last: int
    read: int
    owed: tuple[int, ...]
    answers: tuple[TriggerAnswers, ...]


class ReceiptBuilder:
    """Builds the receipts of one stream. It has the marks of the lanes, so that no raw event is counted twice.

    It holds the marks of the `MAX_MARKS` lanes that were recorded last. `learn` the mark of any other lane before its next receipt.
    """

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._marks: dict[str, int | None] = {}

    def knows(self, lane: str) -> bool:
        """Return whether the mark of the lane is known."""
        return lane in self._marks

    def learn(self, lanes: Iterable[str], marks: Mapping[str, int]) -> None:
        """Add the marks of unknown lanes. A lane that is not in `marks` has none."""
        for lane in lanes:
            if lane not in self._marks:
                self._remember(lane, marks.get(lane))

    def skipped(self, lane: str, committed: int | None, entries: Sequence[PendingEvent]) -> None:
        """Move the mark of a known lane to `committed` if the upstream has committed more than is recorded: that range has no receipt.

        All `entries` are recorded, whatever the upstream has committed.
        """
        mark, first = self._marks[lane], next((entry.position for entry in entries if entry.position is not None), None)
        if mark is not None and committed is not None and first is not None and mark < committed < first:
            self._remember(lane, committed)

    def receipts(self, lane: str, entries: Iterable[PendingEvent]) -> list[Receipt]:
        """Return the receipts of these entries of a known lane, in order: one for each range with the same owed triggers.

        Entries without a position, and redelivered entries that are recorded already, are left out.
        """
        after = self._marks[lane]
        receipts: list[Receipt] = []
        for owed, group in groupby(self._new(after, entries), lambda entry: entry.owed):
            run = list(group)
            last = run[-1].position or 0
            receipts.append(Receipt(self.stream, lane, after, last, len(run), owed, _summed(run)))
            after = last
        return receipts

    def recorded(self, receipt: Receipt) -> None:
        """Move the mark of the lane: this receipt is durable."""
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
