"""Background work survives whatever it meets: it is tried again, what is beside it goes on, and people are told."""

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


def test_pauses_grow_and_end_with_a_success() -> None:
    work = BackgroundWork()
    pauses = [work.record_failure("it", ValueError("x" * 10_000)) for _ in range(12)]
    assert (pauses[:3], pauses[-1]) == ([1.0, 2.0, 4.0], MAX_PAUSE_SECONDS)
    (alert,) = work.alerts()
    assert (alert.about, alert.severity, len(alert.summary) < 500) == ("work:it", "error", True)
    work.record_success("it")
    assert work.alerts() == []
    assert work.record_failure("it", ValueError()) == 1.0


def test_a_sweep_that_fails_stops_no_other_and_is_on_show_until_it_succeeds(store: Store) -> None:
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


def test_the_pruner_goes_on_after_any_exception(store: Store) -> None:
    sweep = Failing(0)
    with Pruner(store, 30, sweeps=[sweep]):
        for _ in range(2):
            assert sweep.called.wait(30)
            sweep.called.clear()


def test_the_alarm_goes_on_after_any_exception(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Failing(None)
    monkeypatch.setattr(store.task_runs, "sweep", sweep)
    with DeadlineTimer(store.task_runs, store.background):
        for _ in range(2):
            assert sweep.called.wait(30)
            sweep.called.clear()
        assert [alert.about for alert in store.background.alerts()] == ["work:timeouts of task runs"]


def test_an_observer_that_fails_stops_no_writer(store: Store) -> None:
    observer = Failing(None)
    forget = store.observe(observer)
    assert store.jobs.register(registration()).id
    assert observer.called.is_set()
    forget()
    assert store.jobs.register(registration()).id
