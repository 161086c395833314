"""Find the events on which a pipeline fails: a run that failed permanently is split into parts, which are runs of their own.

The parts are executed in order, depth first, so that a pipeline receives its events in order. The first part is one
event. If the pipeline fails on that and on the rest, it is assumed to fail on all events, and the rest becomes one dead
letter. Otherwise each part that fails is split in halves. After MAX_FAILED_IN_A_ROW failed parts without a success, or
MAX_FAILED in total, the remaining parts become dead letters without an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.pipeline.runs.run import Run
from headrace.wire.pipelines.plans import PlannedRun, SplitRun

MAX_FAILED_IN_A_ROW: Final = 20
"""Higher than the failures of a search for one event among 500,000 before its first success."""
MAX_FAILED: Final = 200

_FIRST_PART: Final = 1 << 48
_PATH_BITS: Final = 24


def is_part(run: Run) -> bool:
    """Return whether the run is part of one that failed."""
    return run.number >= _FIRST_PART


def parts_of(run: Run) -> tuple[Run, Run]:
    """Return two runs that together have the events of one, in order."""
    middle = len(run.slice) // 2 if is_part(run) else 1
    first, second = np.arange(middle), np.arange(middle, len(run.slice))
    root, path = _root(run), (run.number & ((1 << _PATH_BITS) - 1)) if is_part(run) else 1
    parts = []
    for index, rows in enumerate((first, second)):
        parts.append(
            Run(
                run.batch,
                _FIRST_PART + (root << _PATH_BITS) + 2 * path + index,
                run.pipeline,
                f"{run.part or '0'}.{index}",
                run.table,
                run.format,
                None,
                run.slice.take(rows),
                None if run.events is None else run.events.slice(int(rows[0]), len(rows)),
            )
        )
    return parts[0], parts[1]


def split_of(run: Run, parts: tuple[Run, Run], epoch: int) -> SplitRun:
    """Return the request that replaces a run by its parts."""
    return SplitRun(
        epoch=epoch,
        batch=run.batch,
        number=run.number,
        parts=[
            PlannedRun(
                number=part.number,
                pipeline=part.pipeline,
                part=part.part,
                table=part.table,
                format=None if part.table is None else part.format,
                events=len(part.slice),
                first=int(part.slice.seqs.min()),
                last=int(part.slice.seqs.max()),
                slice=number,
            )
            for number, part in enumerate(parts)
        ],
        slices=[part.slice.pack() for part in parts],
    )


@dataclass(slots=True)
class _Search:
    open: int = 1
    succeeded: int = 0
    failed: int = 0
    in_a_row: int = 0
    error: str = ""


class Searches:
    """The searches in progress, each for the events on which one planned run fails."""

    def __init__(self) -> None:
        self._searches: dict[tuple[int, int], _Search] = {}

    def given_up(self, run: Run) -> str | None:
        """Return the last error of the run's search if the search was given up, else None."""
        search = self._searches.get(_key(run))
        if search is None:
            return None
        hopeless = search.failed > 2 and not search.succeeded
        return search.error if hopeless or search.in_a_row >= MAX_FAILED_IN_A_ROW or search.failed >= MAX_FAILED else None

    def failed(self, run: Run, error: str) -> bool:
        """Record that a run failed permanently; return whether to split it."""
        search = self._searches.setdefault(_key(run), _Search())
        search.failed += 1
        search.in_a_row += 1
        search.error = error
        if len(run.slice) > 1 and self.given_up(run) is None:
            search.open += 1
            return True
        self._ended(run)
        return False

    def succeeded(self, run: Run) -> None:
        """Record that a run succeeded."""
        search = self._searches.get(_key(run))
        if search is not None:
            search.succeeded += 1
            search.in_a_row = 0
            self._ended(run)

    def ended(self, run: Run) -> None:
        """Record that a run became a dead letter without an attempt."""
        if _key(run) in self._searches:
            self._ended(run)

    def _ended(self, run: Run) -> None:
        search = self._searches[_key(run)]
        search.open -= 1
        if not search.open:
            del self._searches[_key(run)]


def _root(run: Run) -> int:
    return (run.number - _FIRST_PART) >> _PATH_BITS if is_part(run) else run.number


def _key(run: Run) -> tuple[int, int]:
    return run.batch, _root(run)
