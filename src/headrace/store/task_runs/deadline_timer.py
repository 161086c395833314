"""The timer of the task runs. It sleeps until the first deadline, and a commit signal wakes it when that changes."""

from __future__ import annotations

from threading import Condition, Thread
from types import TracebackType
from typing import Self

from headrace.store.background import BackgroundWork
from headrace.store.task_runs.task_runs import TaskRuns

MAX_SLEEP_SECONDS = 15.0  # seconds; another API server may have started a wait, and the job of a worker may have ended
MICROSECONDS_PER_SECOND = 1_000_000
WORK = "timeouts of task runs"


class DeadlineTimer:
    """A thread that sweeps the task runs when a deadline has passed. It is a context manager."""

    def __init__(self, task_runs: TaskRuns, background: BackgroundWork) -> None:
        self._task_runs = task_runs
        self._background = background
        self._changed = Condition()
        self._notified = False
        self._over = False
        self._thread = Thread(target=self._run, name="headrace-deadline-timer", daemon=True)

    def __enter__(self) -> Self:
        self._stop_listening = self._task_runs.commit_signal.listen(self._notify)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stop_listening()
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def _notify(self) -> None:
        with self._changed:
            self._notified = True
            self._changed.notify()

    def _run(self) -> None:
        while not self._over:
            sleep = self._sweep()
            with self._changed:
                self._changed.wait_for(lambda: self._notified or self._over, sleep)
                self._notified = False

    def _sweep(self) -> float:
        """Sweep. Return the seconds until the next sweep."""
        try:
            first = self._task_runs.sweep()
        except Exception as error:
            return self._background.record_failure(WORK, error)
        self._background.record_success(WORK)
        if first is None:
            return MAX_SLEEP_SECONDS
        return min(MAX_SLEEP_SECONDS, first / MICROSECONDS_PER_SECOND)
