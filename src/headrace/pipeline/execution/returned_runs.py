"""Runs that failed and go back to the orderer, which plans them again in smaller runs: those of pipelines that hold followers."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from headrace.pipeline.runs.run import Run

MAX_LETTERS_IN_A_ROW: Final = 10
"""Single events that a pipeline fails on, one after the other, after which a run that fails becomes one dead letter."""


class ReturnedRuns:
    """The returned runs of one scope: added by the threads of pipelines, taken by the driver's. They stay open meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[Run] = []
        self._searched: set[str] = set()
        self._letters: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many runs were returned and not taken yet."""
        return len(self._runs)

    def failed(self, run: Run) -> bool:
        """Note that a run failed for good; return whether it returns to the plan instead of becoming a dead letter."""
        with self._lock:
            hopeless = self._letters[run.pipeline] >= MAX_LETTERS_IN_A_ROW
            returned = run.letter is None and len(run.slice) > 1 and not hopeless
            if returned:
                self._searched.add(run.pipeline)
            else:
                self._searched.discard(run.pipeline)
                self._letters[run.pipeline] = 0 if hopeless else self._letters[run.pipeline] + 1
            return returned

    def succeeded(self, run: Run) -> None:
        """Note that a run succeeded."""
        with self._lock:
            self._searched.discard(run.pipeline)
            del self._letters[run.pipeline]

    def is_searched(self, pipeline: str) -> bool:
        """Return whether a run of the pipeline was returned, and no event that fails was found since: one attempt is enough then."""
        with self._lock:
            return pipeline in self._searched

    def add(self, run: Run) -> None:
        """Return a run."""
        with self._lock:
            self._runs.append(run)

    def take(self) -> list[Run]:
        """Return the runs that were returned since the last call."""
        with self._lock:
            runs, self._runs = self._runs, []
            return runs
