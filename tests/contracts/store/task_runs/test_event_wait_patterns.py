"""The contract of task runs that wait with an event pattern: each gets the first event whose payload matches, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select

from headrace.store import Store
from headrace.store.db.database import Database
from headrace.store.ordering import payloads
from headrace.store.queries.task_runs import task_run
from headrace.store.tables.ordering import ordering_events
from headrace.store.tables.task_runs import run_events
from headrace.store.task_runs import awaited_events, earlier_events, event_waits, wait_terms
from headrace.wire.custody.events import EventItem
from headrace.wire.task_runs import AwaitedEvent, ClaimedRun, ClaimRuns, DeferRun, StartRun, WaitCondition
from support.patterns.corpus import WHOLE
from support.processes.store import Holder, event, holder, registration


class Scene:
    """A project whose triggers fire, a worker of it, and an API server that hands events over."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.owner: Holder = holder(store, "orders", "others")
        self.orders, self.others = sorted(self.owner.epochs)
        self.worker = store.jobs.register(registration("worker")).id
        self.count = 0

    def wait(self, run_id: str, match: Any, **fields: Any) -> str:
        awaited = AwaitedEvent(**{"on": ["orders"], "match": match} | fields)
        return self.store.task_runs.start("flights", StartRun(run_id=run_id, task="t", waiting=WaitCondition(event=awaited))).state

    def append(self, *payloads: Any, firing: int | None = None) -> None:
        """Store an event of each payload, named e1, e2 and so on by its seq."""
        self.owner.append(*(self.event(payload, firing=firing) for payload in payloads))

    def event(self, payload: Any, firing: int | None = None, **other: Any) -> EventItem:
        self.count += 1
        text = payload if isinstance(payload, str) else json.dumps(payload)
        return event(f"e{self.count}", firing or self.orders, payload=text, **other)

    def dispatch(self) -> int:
        """Hand over all that there is; return the number of events that were claimed."""
        claimed = 0
        while (turn := self.store.event_waits.take()) is not None and (turn.read or turn.claims):
            claimed += len(turn.claims)
            self.store.event_waits.deliver(turn.claims)
        return claimed

    def claim(self) -> dict[str, ClaimedRun]:
        return {run.run_id: run for run in self.store.task_runs.claim(self.worker, ClaimRuns(capacity=999, tasks=["t"])).runs}

    def got(self) -> dict[str, str]:
        """Return the id of the event of each run that may go on."""
        return {run_id: json.loads(run.kwargs)["event"]["id"] for run_id, run in self.claim().items()}

    def defer(self, run: ClaimedRun, match: Any) -> str:
        waiting = WaitCondition(event=AwaitedEvent(on=["orders"], match=match))
        return self.store.task_runs.defer(self.worker, run.run_id, DeferRun(epoch=run.epoch, waiting=waiting)).state

    def open_events(self) -> int:
        with self.store.reading() as connection:
            return int(connection.execute(select(func.count()).select_from(ordering_events)).scalar_one())


@pytest.fixture
def scene(store: Store) -> Scene:
    return Scene(store)


PAID = {"status": ["paid"]}


def test_a_run_gets_the_first_event_whose_payload_matches(scene: Scene) -> None:
    assert scene.wait("one", PAID) == "deferred"
    scene.append({"status": "new"}, [{"status": "paid"}], "null", '"paid"')
    scene.append({"status": "paid"}, firing=scene.others)
    scene.dispatch()
    assert (scene.got(), scene.open_events()) == ({}, 0)
    with scene.store.reading() as connection:
        shown = task_run(connection, "one")
    assert shown is not None
    assert shown.waits_for_event == AwaitedEvent(on=["orders"], match=PAID)
    scene.append({"status": "new"}, {"status": "paid"}, {"status": "paid"})
    scene.dispatch()
    assert (scene.got(), scene.open_events()) == ({"one": "e7"}, 0)


def test_a_pattern_is_one_more_condition(scene: Scene) -> None:
    scene.wait("by-subject", PAID, subject="A7")
    scene.wait("by-type", PAID, type="order", on=["*"])
    scene.wait("any-payload", None, type="order", on=["*"])
    scene.owner.append(
        scene.event({"status": "paid"}, subject="A8"),
        scene.event({"status": "new"}, subject="A7", type="order"),
        scene.event({"status": "paid"}, subject="A7"),
        scene.event({"status": "paid"}, type="order"),
    )
    scene.dispatch()
    assert scene.got() == {"by-subject": "e3", "by-type": "e4", "any-payload": "e2"}


def test_each_of_many_runs_gets_its_own_event(scene: Scene) -> None:
    for n in range(120):
        scene.wait(f"r{n}", {"order": [n]})
    scene.append(*({"order": n} for n in reversed(range(120))))
    scene.dispatch()
    assert scene.got() == {f"r{n}": f"e{120 - n}" for n in range(120)}


def test_events_that_match_no_pattern_are_not_claimed(scene: Scene) -> None:
    scene.wait("one", PAID)
    scene.append(*({"status": "new", "n": n} for n in range(50)), {"status": "paid"})
    assert (scene.dispatch(), scene.got()) == (1, {"one": "e51"})


@pytest.mark.parametrize("match", [PAID, None])
def test_many_waits_are_compared_in_parts(scene: Scene, monkeypatch: pytest.MonkeyPatch, match: Any) -> None:
    monkeypatch.setattr(awaited_events, "PAGE", 4)
    for n in range(39):
        scene.wait(f"r{n}", {"order": [n]} if match else None, **({} if match else {"type": f"t{n}"}))
    scene.owner.append(*(scene.event({"order": n}, type=f"t{n}") for n in range(35, 55)))
    assert (scene.dispatch(), scene.got()) == (4, {f"r{n}": f"e{n - 34}" for n in range(35, 39)})


def test_if_the_waits_are_too_many_each_event_is_claimed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_events, "PAGE", 4)
    for n in range(41):
        scene.wait(f"r{n}", {"order": [n]})
    scene.append(*({"order": n} for n in range(35, 55)))
    assert (scene.dispatch(), scene.got()) == (20, {f"r{n}": f"e{n - 34}" for n in range(35, 41)})


def test_a_page_is_compared_for_a_limited_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MAX_TESTED_SECONDS", -1.0)
    scene.wait("one", PAID)
    scene.append({"status": "new"}, {"status": "new"}, {"status": "paid"})
    turns = []
    while (turn := scene.store.event_waits.take()) is not None and (turn.read or turn.claims):
        turns.append(len(turn.claims))
        scene.store.event_waits.deliver(turn.claims)
    assert (turns, scene.got()) == ([0, 0, 1], {"one": "e3"})


@pytest.mark.parametrize("max_bytes", [1, 100])
def test_pages_of_large_payloads_are_shorter(scene: Scene, monkeypatch: pytest.MonkeyPatch, max_bytes: int) -> None:
    monkeypatch.setattr(payloads, "MAX_PART_BYTES", max_bytes)
    monkeypatch.setattr(awaited_events, "PayloadBudget", lambda: payloads.PayloadBudget(max_bytes))
    scene.wait("one", PAID)
    scene.append(*({"status": "new", "text": "x" * n} for n in range(30)), {"status": "paid"})
    assert (scene.dispatch(), scene.got(), scene.open_events()) == (1, {"one": "e31"}, 0)


def test_a_run_finds_an_earlier_event_by_its_payload(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_events, "MAX_SCANNED_EVENTS", 7)
    scene.wait("idle", {"never": [1]})
    scene.store.task_runs.start("flights", StartRun(run_id="one", task="t"))
    run = scene.claim()["one"]
    scene.append(*({"status": "new"} for _ in range(20)), {"status": "paid", "n": 1}, {"status": "paid", "n": 2})
    scene.dispatch()
    assert scene.defer(run, {"status": ["paid"], "n": [2]}) == "scheduled"
    assert scene.got() == {"one": "e22"}
    scene.store.task_runs.start("flights", StartRun(run_id="two", task="t"))
    assert scene.defer(scene.claim()["two"], PAID) == "deferred", "events before its creation do not count"


def test_a_leader_that_matches_too_comes_first(scene: Scene) -> None:
    scene.wait("idle", {"never": [1]})
    scene.store.task_runs.start("flights", StartRun(run_id="one", task="t"))
    run = scene.claim()["one"]
    scene.owner.append(
        event("follower", scene.orders, follows="middle", payload='{"status": "paid"}'),
        event("middle", scene.orders, follows="first", payload='{"status": "paid"}'),
        event("first", scene.orders, payload='{"status": "new"}'),
    )
    scene.dispatch()
    assert scene.defer(run, PAID) == "scheduled"
    assert scene.got() == {"one": "middle"}


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something once, after a page was read and before the writer's transaction."""
    original, left = awaited_events.read_awaited, [act]

    def read_awaited(*args: Any) -> Any:
        page = original(*args)
        while left:
            left.pop()()
        return page

    monkeypatch.setattr(event_waits, "read_awaited", read_awaited)


def test_a_run_that_begins_to_wait_after_its_page_was_read_gets_the_event(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.wait("one", {"never": [1]})
    scene.store.task_runs.start("flights", StartRun(run_id="two", task="t"))
    run = scene.claim()["two"]
    scene.append({"status": "new"}, {"status": "paid"})
    between(monkeypatch, lambda: scene.defer(run, PAID))
    assert scene.dispatch() == 2, "both may be for the new run"
    assert (scene.got(), scene.open_events()) == ({"two": "e2"}, 0)


def test_a_run_gets_an_event_that_another_run_without_a_pattern_does_not_wait_for_any_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.wait("any", None)
    scene.wait("one", PAID)
    scene.append({"status": "paid"})
    between(monkeypatch, lambda: scene.store.task_runs.cancel("any"))
    scene.dispatch()
    assert scene.got() == {"one": "e1"}


def test_a_payload_too_long_for_all_patterns_is_tested_by_each(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_waits, "PayloadBudget", lambda: payloads.PayloadBudget(1))
    for n in range(60):
        scene.wait(f"r{n}", {"items": {"sku": [n], "count": [n if n % 2 else -1]}})
    scene.append({"items": [{"sku": n, "count": n} for n in range(20_000)]})
    transactions = 0
    write = Database.write

    def counting(self: Database, work: Any) -> Any:
        nonlocal transactions
        transactions += 1
        return write(self, work)

    turn = scene.store.event_waits.take()
    assert turn is not None
    monkeypatch.setattr(Database, "write", counting)
    assert scene.store.event_waits.deliver(turn.claims) == 30
    assert transactions == 11, "each of 10 tests one pattern; the last tests the other 50 at once"
    with scene.store.reading() as connection:
        resumed = set(connection.execute(select(run_events.c.run_id)).scalars())
    assert (resumed, scene.open_events()) == ({f"r{n}" for n in range(1, 60, 2)}, 0)


def test_runs_with_large_patterns_are_examined_in_slices(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_terms, "MAX_PATTERN_FIELDS", 5)
    for n in range(9):
        scene.wait(f"r{n}", {"a": [n % 2], "b": [1], "c": [1]})
    scene.append({"a": 1, "b": 1, "c": 1})
    assert scene.dispatch() == 1
    assert scene.got() == {f"r{n}": "e1" for n in range(1, 9, 2)}


def test_runs_wait_by_the_published_rules(scene: Scene) -> None:
    cases = [case for case in WHOLE if type(case[1]) is dict]
    for n, (pattern, _, _) in enumerate(cases, 1):
        scene.wait(f"r{n}", pattern, id=f"e{n}")
    scene.append(*(fields for _, fields, _ in cases))
    scene.dispatch()
    assert scene.got() == {f"r{n}": f"e{n}" for n, (_, _, expected) in enumerate(cases, 1) if expected}


def test_the_first_event_of_the_published_cases_that_matches_resumes_a_run(scene: Scene) -> None:
    """All runs wait for the same trigger, so that one index has all patterns."""
    matching = [(pattern, fields) for pattern, fields, expected in WHOLE if type(fields) is dict and expected]
    for n, (pattern, _) in enumerate(matching):
        scene.wait(f"r{n}", {**pattern, "case": [n]})
    scene.append(*({**fields, "case": n} for n, (_, fields) in enumerate(matching)))
    scene.dispatch()
    assert scene.got() == {f"r{n}": f"e{n + 1}" for n in range(len(matching))}
