"""Background work survives failures: it is retried, other work continues, and an alert reports it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.store import Store
from headrace.store.background import MAX_PAUSE_SECONDS, BackgroundWork
from headrace.store.retention.pruner import Pruner
from headrace.store.task_runs.deadline_timer import DeadlineTimer
from support.processes.store import registration


class Failing:
    """A work that fails until it is mended, and says when it was called."""

    def __init__(self, answer: Any, name: str = "odd_things", *, broken: bool = True) -> None:
        self.__name__ = name
        self.broken = broken
        self.called = threading.Event()
        self._answer = answer

    def __call__(self, *_: Any) -> Any:
        self.called.set()
        if self.broken:
            raise ValueError("no such thing")
        return self._answer


def test_retry_pauses_grow_and_are_reset_by_a_success() -> None:
    work = BackgroundWork()
    pauses = [work.record_failure("it", ValueError("x" * 10_000)) for _ in range(12)]
    assert (pauses[:3], pauses[-1]) == ([1.0, 2.0, 4.0], MAX_PAUSE_SECONDS)
    (alert,) = work.alerts()
    assert (alert.about, alert.severity, len(alert.summary) < 500) == ("work:it", "error", True)
    work.record_success("it")
    assert work.alerts() == []
    assert work.record_failure("it", ValueError()) == 1.0


def test_a_failed_sweep_is_an_alert_and_does_not_stop_other_sweeps(store: Store) -> None:
    sweep = Failing(0)
    other = Failing(0, "others", broken=False)
    pruner = Pruner(store, 30, sweeps=[sweep, other])
    assert pruner.run_round() == 1.0
    assert other.called.is_set()
    assert [(alert.about, "no such thing" in alert.summary) for alert in store.background.alerts()] == [
        ("work:retention of odd things", True)
    ]
    sweep.broken = False
    assert pruner.run_round() > 60
    assert store.background.alerts() == []


def test_the_pruner_continues_after_any_exception(store: Store) -> None:
    sweep = Failing(0)
    with Pruner(store, 30, sweeps=[sweep]):
        for _ in range(2):
            assert sweep.called.wait(30)
            sweep.called.clear()


def test_the_deadline_timer_continues_after_any_exception(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Failing(None)
    monkeypatch.setattr(store.task_runs, "sweep", sweep)
    with DeadlineTimer(store.task_runs, store.background):
        for _ in range(2):
            assert sweep.called.wait(30)
            sweep.called.clear()
        assert [alert.about for alert in store.background.alerts()] == ["work:timeouts of task runs"]


def test_a_failed_observer_does_not_stop_writers(store: Store) -> None:
    observer = Failing(None)
    forget = store.observe(observer)
    assert store.jobs.register(registration()).id
    assert observer.called.is_set()
    forget()
    assert store.jobs.register(registration()).id
