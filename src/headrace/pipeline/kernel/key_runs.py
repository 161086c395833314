"""Find rows by key while rows are added: sorted runs, of which small ones are merged."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.pipeline.kernel import key_index
from headrace.pipeline.kernel.forest import NO_ROW, Rows
from headrace.pipeline.kernel.key_index import Keys

MAX_MERGED: Final = 262_144
"""Maximum rows of a merged run, which bounds the time of one merge."""

_Run: TypeAlias = tuple[npt.NDArray[np.uint64], Rows]
"""The mixes of keys, ascending, and the row of each."""


class KeyRuns:
    """Row numbers by the mix of their keys. A key may have many rows, and rows of other keys may have the same mix."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def add(self, keys: Keys, rows: Rows) -> None:
        """Add rows with these keys."""
        if not len(rows):
            return
        run = _sorted(key_index.mixed(keys), rows)
        while self._runs and len(self._runs[-1][1]) <= len(run[1]) <= MAX_MERGED - len(self._runs[-1][1]):
            mixed, before = self._runs.pop()
            run = _sorted(np.concatenate([mixed, run[0]]), np.concatenate([before, run[1]]))
        self._runs.append(run)

    def candidates(self, keys: Keys) -> tuple[Rows, Rows]:
        """Return pairs of an index in `keys` and a row that may have that key. All rows with that key are among them."""
        mixed = key_index.mixed(keys)
        order = np.argsort(mixed)  # sorted lookups share the processor's caches
        ascending = mixed[order]
        indexes, matches = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for run, rows in self._runs:
            start = np.searchsorted(run, ascending)
            start[start == len(run)] = 0
            hit = np.flatnonzero(run[start] == ascending)
            start, hits = start[hit], ascending[hit]
            counts = np.ones(len(hit), dtype=np.int64)
            more = np.flatnonzero(run[np.minimum(start + 1, len(run) - 1)] == hits)
            counts[more] = np.searchsorted(run, hits[more], side="right") - start[more]
            at = np.arange(counts.sum()) + np.repeat(start - (np.cumsum(counts) - counts), counts)
            indexes.append(np.repeat(order[hit], counts))
            matches.append(rows[at])
        return np.concatenate(indexes), np.concatenate(matches)

    def renumber(self, new: Rows) -> None:
        """Replace each row by its new number, and drop rows with NO_ROW."""
        runs = []
        for mixed, rows in self._runs:
            numbers = new[rows]
            here = numbers != NO_ROW
            if here.any():
                runs.append((mixed[here], numbers[here]))
        self._runs = runs


def _sorted(mixed: npt.NDArray[np.uint64], rows: Rows) -> _Run:
    order = np.argsort(mixed, kind="stable")  # fast if the input consists of two sorted runs
    return mixed[order], rows[order]
