"""Failed runs of pipelines that hold followers. They return to the orderer, which plans them again as smaller runs."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from headrace.pipeline.runs.run import Run

MAX_DEAD_LETTERS_IN_A_ROW: Final = 10
"""Consecutive single events on which a pipeline fails, after which a run that fails becomes one dead letter."""


class ReturnedRuns:
    """The returned runs of one scope: added by the threads of pipelines, taken by the driver's thread. They stay open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[Run] = []
        self._searched: set[str] = set()
        self._dead_letters: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return the number of returned runs that were not taken yet."""
        return len(self._runs)

    def failed(self, run: Run) -> bool:
        """Record that a run failed permanently. Return whether it returns to the orderer instead of becoming a dead letter."""
        with self._lock:
            hopeless = self._dead_letters[run.pipeline] >= MAX_DEAD_LETTERS_IN_A_ROW
            returned = run.dead_letter is None and len(run.slice) > 1 and not hopeless
            if returned:
                self._searched.add(run.pipeline)
            else:
                self._searched.discard(run.pipeline)
                self._dead_letters[run.pipeline] = 0 if hopeless else self._dead_letters[run.pipeline] + 1
            return returned

    def succeeded(self, run: Run) -> None:
        """Record that a run succeeded."""
        with self._lock:
            self._searched.discard(run.pipeline)
            del self._dead_letters[run.pipeline]

    def is_searched(self, pipeline: str) -> bool:
        """Return whether a run of the pipeline was returned and the failing event is not isolated yet. One attempt is enough then."""
        with self._lock:
            return pipeline in self._searched

    def add(self, run: Run) -> None:
        """Add a run that returns."""
        with self._lock:
            self._runs.append(run)

    def take(self) -> list[Run]:
        """Return the runs that were added since the last call."""
        with self._lock:
            runs, self._runs = self._runs, []
            return runs
