"""Every step from every state of a task run, and the invariants after any number of steps."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.core import task_run
from headrace.core.task_run import ALLOWED, ENDS, MAX_ATTEMPTS, TERMINAL, TIMED_OUT, Continuation, State, Step, TaskRunState
from headrace.errors import IllegalStep

STATES: tuple[State, ...] = ("scheduled", "running", "deferred", "succeeded", "failed", "skipped", "cancelled")
STEPS: dict[Step, Callable[[TaskRunState], TaskRunState]] = {
    "claim": lambda run: task_run.claim(run, 7),
    "worker_lost": task_run.worker_lost,
    "defer": lambda run: task_run.defer(run, Continuation("collect", "{}")),
    "finish": lambda run: task_run.finish(run, "succeeded", "1"),
    "fire": lambda run: task_run.fire(run, "some.type", '{"a": 1}'),
    "expire": task_run.expire,
    "trigger_lost": lambda run: task_run.trigger_lost(run, "gone"),
    "cancel": task_run.cancel,
}
LEADS_TO: dict[tuple[Step, State], State] = {
    ("claim", "scheduled"): "running",
    ("worker_lost", "running"): "scheduled",
    ("defer", "running"): "deferred",
    ("finish", "running"): "succeeded",
    ("fire", "deferred"): "scheduled",
    ("expire", "deferred"): "failed",
    ("trigger_lost", "deferred"): "failed",
    ("cancel", "scheduled"): "cancelled",
    ("cancel", "running"): "cancelled",
    ("cancel", "deferred"): "cancelled",
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("step", STEPS)
def test_each_step_leads_to_the_state_in_the_table_or_is_illegal(step: Step, state: State) -> None:
    run = TaskRunState(state, Continuation("method", "{}"))
    if (step, state) in LEADS_TO:
        assert STEPS[step](run).state == LEADS_TO[step, state]
    else:
        with pytest.raises(IllegalStep, match=f"{state} cannot take the step {step}"):
            STEPS[step](run)
        assert state not in ALLOWED[step]


@pytest.mark.parametrize("type", TERMINAL)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_terminal_event_ends_a_deferred_run_without_a_worker(type: str, at_once: bool) -> None:
    wait = Continuation(None, "{}", timeout_at=9)
    run = task_run.begin("{}", wait) if at_once else task_run.defer(task_run.claim(task_run.begin("{}"), 1), wait)
    ended = task_run.fire(run, type, '"why"')
    assert (ended.state, ended.wait.timeout_at) == (TERMINAL[type], None)
    assert (ended.error if ended.state == "failed" else ended.result) == '"why"'


def test_a_timeout_fails_the_run_unless_it_names_a_timeout_method() -> None:
    assert task_run.expire(task_run.begin("{}", Continuation("go", "{}", 5))).error == TIMED_OUT
    resumed = task_run.expire(task_run.begin("{}", Continuation("go", '{"a":1}', 5, "too_late")))
    assert (resumed.state, resumed.wait) == ("scheduled", Continuation("too_late", '{"a":1}'))


def test_a_run_fails_after_five_workers_have_ended() -> None:
    run = task_run.begin("{}")
    for _ in range(MAX_ATTEMPTS):
        assert run.state == "scheduled"
        run = task_run.worker_lost(task_run.claim(run, 1))
    assert (run.state, run.error) == ("failed", "5 workers ended while they ran it.")


def test_a_resumed_run_has_all_its_attempts() -> None:
    run = task_run.claim(task_run.worker_lost(task_run.claim(task_run.begin("{}"), 1)), 2)
    assert run.attempt == 2
    run = task_run.claim(task_run.fire(task_run.defer(run, Continuation("go", "{}")), "t", "1"), 3)
    assert (run.attempt, run.step, run.epoch) == (1, 1, 4)


@pytest.mark.parametrize(
    ("kwargs", "spliced"), [("{}", '{"event":[1]}'), (' { "a": 1 } ', '{"a": 1,"event":[1]}'), ("{ }", '{"event":[1]}')]
)
def test_the_payload_is_inserted_unchanged_into_the_arguments(kwargs: str, spliced: str) -> None:
    assert task_run.with_argument(kwargs, "event", "[1]") == spliced


class AnyRun(RuleBasedStateMachine):
    """A run to which everything happens, compared with how many waits there were and how many of them anything ended."""

    def __init__(self) -> None:
        super().__init__()
        self.run = task_run.begin("{}")
        self.before = self.run
        self.waits = 0
        self.over = 0

    def step(self, run: TaskRunState) -> None:
        self.before, self.run = self.run, run

    @rule(name=st.sampled_from(sorted(STEPS)))
    def refused(self, name: Step) -> None:
        if self.run.state not in ALLOWED[name]:
            with pytest.raises(IllegalStep):
                STEPS[name](self.run)

    @precondition(lambda self: self.run.state == "scheduled")
    @rule(job=st.integers(1, 3))
    def claim(self, job: int) -> None:
        self.step(task_run.claim(self.run, job))

    @precondition(lambda self: self.run.state == "running")
    @rule(late=st.sampled_from([None, "too_late"]), value=st.integers())
    def defer(self, late: str | None, value: int) -> None:
        self.waits += 1
        self.step(task_run.defer(self.run, Continuation("go", json.dumps({"value": value}), 5, late)))

    @precondition(lambda self: self.run.state == "running")
    @rule()
    def lose(self) -> None:
        self.step(task_run.worker_lost(self.run))

    @precondition(lambda self: self.run.state == "deferred")
    @rule(type=st.sampled_from(["t", *TERMINAL]), payload=st.recursive(st.none() | st.text(), lambda inner: st.lists(inner), max_leaves=4))
    def fire(self, type: str, payload: object) -> None:
        text = json.dumps(payload)
        self.over += 1
        self.step(task_run.fire(self.run, type, text))
        if type == "t":
            assert json.loads(self.run.wait.kwargs) == json.loads(self.before.wait.kwargs) | {"event": payload}

    @precondition(lambda self: self.run.state == "deferred")
    @rule()
    def expire(self) -> None:
        self.over += 1
        self.step(task_run.expire(self.run))

    @precondition(lambda self: self.run.state in ALLOWED["cancel"])
    @rule()
    def cancel(self) -> None:
        self.over += self.run.state == "deferred"
        self.step(task_run.cancel(self.run))

    @precondition(lambda self: self.run.state == "running")
    @rule(how=st.sampled_from(["succeeded", "failed", "skipped"]))
    def finish(self, how: task_run.Finish) -> None:
        self.step(task_run.finish(self.run, how, "1"))

    @invariant()
    def law(self) -> None:
        run = self.run
        assert run.epoch >= self.before.epoch
        assert self.before.state not in ENDS or run == self.before
        assert run.step == self.waits == self.over + (run.state == "deferred"), "exactly one thing ends a wait"
        assert run.state != "running" or run.holder is not None
        assert run.state == "deferred" or run.wait.timeout_at is None
        assert run.attempt <= MAX_ATTEMPTS
        assert isinstance(json.loads(run.wait.kwargs), dict)


TestAnyRun = AnyRun.TestCase
