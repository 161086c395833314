"""The contract of held followers: unsettled dead letters, leaders, and runs whose events a plan takes back."""

from __future__ import annotations

import pytest

from headrace.core.identity import event_key
from headrace.errors import ApiRefused, Fenced
from headrace.store import Store
from headrace.store.dead_letters import pipelines
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetterSelection
from headrace.wire.pipelines.plans import Plan, ScopeDeadLetter
from support.pipelines.plans import driver, places, plan, planned, report, state, stored_slices
from support.processes.store import event, holder


def scope(store: Store) -> int:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    return job


def taking_back(batch: int, *runs: tuple[int, int], epoch: int = 1) -> Plan:
    return plan(batch, epoch=epoch, cursor=Cursor(cursor=0, batch=batch), taken_back=list(runs), state={"held/1/w/0": b"events"})


def test_a_plan_takes_back_runs_and_stores_their_events_atomically(store: Store) -> None:
    job = scope(store)
    store.plans.store(job, "s", plan(1, planned(0, 0), planned(1, 0), planned(2, 1)))
    for _ in range(2):  # an answer is lost
        store.plans.store(job, "s", taking_back(2, (1, 0), (1, 2)))
    assert (places(store, job), stored_slices(store)) == ([(1, 1)], [(1, 0)])
    assert state(store, job) == {"held/1/w/0": b"events"}
    store.runs.report(job, [report(1, 1)])
    with pytest.raises(ApiRefused, match="The run 1 of batch 1 is not open") as caught:
        store.plans.store(job, "s", taking_back(3, (1, 1)))
    assert caught.value.problem == "conflict"
    assert state(store, job) == {"held/1/w/0": b"events"}, "nothing of the plan is stored"
    store.plans.store(job, "s", plan(3))


@pytest.mark.parametrize("page", [2, 5_000])
def test_unsettled_dead_letters_exclude_settled_and_discarded_dead_letters(
    store: Store, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "PAGE_DEAD_LETTERS", page)
    job = scope(store)
    store.plans.store(job, "s", plan(1, *(planned(n, n) for n in range(8)), planned(8, 8, pipeline="q")))
    failed = [report(1, n, state="failed", error="no", dead_letter=f"letter {n}", seqs=[(n, n)]) for n in range(8)]
    store.runs.report(job, [*failed, report(1, 8, pipeline="q", state="failed", error="no", dead_letter="of another")])
    store.pipeline_dead_letters.act("discard", PipelineDeadLetterSelection(ids=["letter 1", "letter 2"]))
    store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(ids=["letter 2", "letter 3", "letter 4"]))
    store.plans.store(job, "s", plan(2, planned(0, 0, dead_letter="letter 4")))
    store.runs.report(job, [report(2, dead_letter="letter 4")])
    found = list[ScopeDeadLetter]()
    after: str | None = ""
    while after is not None:
        part = store.plans.dead_letters(job, "s", "p", after)
        assert len(part.dead_letters) <= page
        found += part.dead_letters
        after = part.after
    assert [(letter.id, letter.seqs) for letter in found] == [(f"letter {n}", [(n, n)]) for n in (0, 2, 3, 5, 6, 7)]
    store.jobs.complete(job, CompleteJob(state="failed"))
    with pytest.raises(Fenced):
        store.plans.dead_letters(job, "s", "p", "")


def test_leaders_are_looked_up_by_key_with_their_first_triggers(store: Store) -> None:
    first = holder(store, "a", "b")
    a, b = sorted(first.epochs)
    first.append(event("2", a, follows="1"), event("1", b), event("3", b, follows="3"))
    first.append(event("2", b))
    keys = [event_key(event("1", a).source, id) for id in ("1", "2", "3", "unknown")]
    found = {one.key: one for one in store.log.leaders(keys, "flights").events}
    assert found.keys() == set(keys[:3])
    assert [(found[key].leader, found[key].triggers) for key in keys[:3]] == [(None, ["b"]), (keys[0], ["a"]), (None, ["b"])]
    assert {tuple(one.triggers) for one in store.log.leaders(keys, "another").events} == {()}
