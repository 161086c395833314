"""Rows by key, where rows are added all the time: sorted runs, of which small ones are merged."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.pipeline.kernel import key_index
from headrace.pipeline.kernel.forest import NOBODY, Rows
from headrace.pipeline.kernel.key_index import Keys

MAX_MERGED: Final = 262_144
"""Rows of a run that is merged of others, so that no single merge takes long."""

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

    def candidates(self, wanted: Keys) -> tuple[Rows, Rows]:
        """Return pairs of a place in `wanted` and a row whose key may be that key: all rows that have it are among them."""
        mixed = key_index.mixed(wanted)
        order = np.argsort(mixed)  # looked up in order, neighbours share what is in the processor's caches
        ascending = mixed[order]
        places, found = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for run, rows in self._runs:
            start = np.searchsorted(run, ascending)
            start[start == len(run)] = 0
            hit = np.flatnonzero(run[start] == ascending)
            start, wanted_here = start[hit], ascending[hit]
            counts = np.ones(len(hit), dtype=np.int64)
            more = np.flatnonzero(run[np.minimum(start + 1, len(run) - 1)] == wanted_here)
            counts[more] = np.searchsorted(run, wanted_here[more], side="right") - start[more]
            at = np.arange(counts.sum()) + np.repeat(start - (np.cumsum(counts) - counts), counts)
            places.append(np.repeat(order[hit], counts))
            found.append(rows[at])
        return np.concatenate(places), np.concatenate(found)

    def renumber(self, new: Rows) -> None:
        """Give each row its new number; rows with NOBODY are left out."""
        runs = []
        for mixed, rows in self._runs:
            numbers = new[rows]
            here = numbers != NOBODY
            if here.any():
                runs.append((mixed[here], numbers[here]))
        self._runs = runs


def _sorted(mixed: npt.NDArray[np.uint64], rows: Rows) -> _Run:
    order = np.argsort(mixed, kind="stable")  # quick where the input is two sorted runs
    return mixed[order], rows[order]
