"""The contract of balancing leases: shares, order of a hand-over, queues, draining; over real databases."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from headrace.errors import ApiRefused, Fenced
from headrace.store import Store
from headrace.store.queries.status import overview
from headrace.store.tables.control import triggers
from headrace.wire.control.jobs import CompleteJob, Heartbeat
from headrace.wire.control.triggers import CleanupTriggers, DeclaredTrigger, DeclareProject, LoadTriggers, TriggersLoaded
from support.processes.store import Holder, TurnedClock, event, holder, registration

NOTHING = Heartbeat()


def trigger(name: str, *, stream: str | None = None, queue: str = "default", priority: int = 0) -> DeclaredTrigger:
    return DeclaredTrigger(name=name, classpath="some.Trigger", kwargs={}, stream=stream, queue=queue, priority=priority)


def declare(store: Store, *declared: DeclaredTrigger) -> int:
    """Let a job that runs nothing declare triggers."""
    job = store.jobs.register(registration(kind="pipeline"))
    store.projects.declare(job.id, "flights", DeclareProject(triggers=list(declared), pipelines=[]))
    return job.id


def join(store: Store) -> int:
    return store.jobs.register(registration()).id


def load(store: Store, job_id: int, *queues: str, capacity: int = 100) -> TriggersLoaded:
    return store.triggers.load(job_id, LoadTriggers(capacity=capacity, queues=list(queues) or ["default"]))


def runs(answer: TriggersLoaded) -> set[int]:
    """Return what a triggerer runs that was answered so."""
    return {lease.trigger_id for lease in answer.leases} - set(answer.revoked)


def clean(store: Store, job_id: int, *trigger_ids: int, **epochs: int) -> None:
    store.triggers.cleanup(job_id, CleanupTriggers(trigger_ids=list(trigger_ids), epochs={int(k[1:]): v for k, v in epochs.items()}))


def rest(store: Store, *job_ids: int) -> dict[int, set[int]]:
    """Let the jobs load, and clean up what they are told to, until nothing moves; return what each runs."""
    for _ in range(20):
        answers = {job_id: load(store, job_id) for job_id in job_ids}
        for job_id, answer in answers.items():
            clean(store, job_id, *answer.revoked)
        if answers == {job_id: load(store, job_id) for job_id in job_ids}:
            return {job_id: runs(answer) for job_id, answer in answers.items()}
    raise AssertionError("still moving")


def states(store: Store) -> dict[str, str]:
    with store.reading() as connection:
        return {row.name: row.state for row in connection.execute(select(triggers))}


def test_a_new_job_gets_its_share_and_the_balance_is_stable(store: Store) -> None:
    declare(store, *(trigger(f"t{n}") for n in range(12)))
    first = join(store)
    assert len(rest(store, first)[first]) == 12
    second, third = join(store), join(store)
    shares = rest(store, first, second, third)
    assert [len(shares[one]) for one in (first, second, third)] == [4, 4, 4]
    assert rest(store, first, second, third) == shares


def test_all_triggers_of_a_stream_stay_together(store: Store) -> None:
    declare(store, *(trigger(f"t{n}", stream=f"s{n % 4}") for n in range(12)))
    first = join(store)
    rest(store, first)
    second = join(store)
    shares = rest(store, first, second)
    for mine in shares.values():
        assert len({(one - 1) % 4 for one in mine}) == 2
        assert len(mine) == 6


def test_a_revoked_trigger_stays_with_its_job_until_the_cleanup(store: Store) -> None:
    declare(store, trigger("one", stream="a"), trigger("two", stream="b"))
    first = Holder(store, join(store), {})
    first.load()
    second = Holder(store, join(store), {})
    second.load()
    answer = load(store, first.job_id)
    (given,) = answer.revoked
    assert store.jobs.heartbeat(first.job_id, NOTHING).revoked == {given: 1}
    assert second.load() == {}
    assert first.append(event("a", given)) == ["stored"], "it still holds it"
    clean(store, first.job_id, given)
    assert first.append(event("b", given)) == ["fenced"]
    assert second.load() == {given: 2}
    assert second.append(event("b", given)) == ["stored"]
    assert load(store, first.job_id).revoked == {}


def test_a_hand_over_ends_when_the_old_job_does(store: Store) -> None:
    declare(store, trigger("one"), trigger("two"))
    first, second = join(store), join(store)
    load(store, first)
    load(store, second)
    assert load(store, first).revoked
    store.jobs.complete(first, CompleteJob(state="succeeded"))
    assert runs(load(store, second)) == {1, 2}


def test_a_late_cleanup_does_not_release_a_newer_lease(store: Store) -> None:
    declare(store, trigger("one"))
    first = join(store)
    load(store, first)
    clean(store, first, 1, t1=1)
    assert load(store, first).leases[0].epoch == 2
    clean(store, first, 1, t1=1)
    assert load(store, first).leases[0].epoch == 2


def test_a_job_cleans_up_only_its_own_triggers(store: Store) -> None:
    declare(store, trigger("one"))
    first, other = join(store), join(store)
    load(store, first)
    clean(store, other, 1)
    assert runs(load(store, first)) == {1}
    store.jobs.complete(other, CompleteJob(state="succeeded"))
    with pytest.raises(Fenced):
        clean(store, other, 1)


def test_a_changed_trigger_is_not_leased_to_another_job_before_its_cleanup(store: Store) -> None:
    owner = holder(store, "one")
    other = holder(store)
    store.projects.declare(owner.job_id, "flights", DeclareProject(triggers=[trigger("one", stream="moved")], pipelines=[]))
    assert other.load() == {}
    clean(store, owner.job_id, 1)
    store.jobs.set_desired_state(owner.job_id, "drain")
    assert other.load() == {1: 2}


def test_a_draining_job_releases_all_triggers_and_gets_none(store: Store) -> None:
    declare(store, *(trigger(f"t{n}") for n in range(30)))
    first, second = join(store), join(store)
    rest(store, first, second)
    store.jobs.set_desired_state(first, "drain")
    assert store.jobs.heartbeat(first, NOTHING).desired_state == "drain"
    assert len(load(store, first).revoked) == 15
    shares = rest(store, first, second)
    assert (len(shares[first]), len(shares[second])) == (0, 30)
    store.jobs.set_desired_state(first, "run")
    shares = rest(store, first, second)
    assert (len(shares[first]), len(shares[second])) == (15, 15)


def test_only_a_running_triggerer_has_a_desired_state(store: Store) -> None:
    pipeline = declare(store)
    ended = join(store)
    store.jobs.complete(ended, CompleteJob(state="succeeded"))
    for job_id, status in ((pipeline, 404), (77, 404), (ended, 409)):
        with pytest.raises(ApiRefused) as refused:
            store.jobs.set_desired_state(job_id, "drain")
        assert refused.value.status == status


def test_a_job_acquires_only_its_queues_and_unserved_queues_are_reported(store: Store) -> None:
    declare(store, trigger("one"), trigger("two", queue="gpu"))
    first = join(store)
    assert runs(load(store, first)) == {1}

    def why() -> dict[str, str | None]:
        with store.reading() as connection:
            return {one.name: one.unserved for one in overview(connection, store.now(), store.liveness).triggers}

    assert why() == {"one": None, "two": "no triggerer serves queue gpu"}
    second = join(store)
    assert runs(load(store, second, "gpu")) == {2}
    assert why() == {"one": None, "two": None}
    load(store, second, "default")
    assert states(store)["two"] == "running", "not yet cleaned up"
    clean(store, second, 2)
    assert why()["two"] == "no triggerer serves queue gpu"


def test_higher_priorities_are_acquired_first_and_missing_capacity_is_reported(store: Store) -> None:
    declare(store, trigger("one"), trigger("two"), trigger("three", priority=5))
    first = join(store)
    assert runs(load(store, first, capacity=2)) == {1, 3}
    with store.reading() as connection:
        shown = {one.name: one.unserved for one in overview(connection, store.now(), store.liveness).triggers}
    assert shown["two"] == "no triggerer that serves queue default has room"


def test_a_new_priority_stops_no_trigger(store: Store) -> None:
    job_id = declare(store, trigger("one"))
    first = join(store)
    before = load(store, first)
    store.projects.declare(job_id, "flights", DeclareProject(triggers=[trigger("one", priority=3)], pipelines=[]))
    assert load(store, first) == before
    with store.reading() as connection:
        assert connection.execute(select(triggers.c.priority)).scalar_one() == 3


def test_a_silent_job_gets_no_new_triggers(store: Store, clock: TurnedClock) -> None:
    job_id = declare(store, trigger("one"), trigger("two"))
    first, second = join(store), join(store)
    rest(store, first, second)
    clock.turn(10)
    store.projects.declare(job_id, "flights", DeclareProject(triggers=[trigger(f"{n}") for n in range(4)], pipelines=[]))
    assert len(runs(load(store, first))) == 4
    shares = rest(store, second, first)
    assert (len(shares[first]), len(shares[second])) == (2, 2)


@pytest.mark.parametrize("seconds", [3_600, -3_600, 10 * 365 * 86_400, -10 * 365 * 86_400])
def test_a_clock_change_neither_ends_jobs_nor_keeps_them_alive(store: Store, clock: TurnedClock, seconds: int) -> None:
    declare(store, trigger("one"))
    dead, other = join(store), join(store)
    load(store, dead)
    load(store, other)
    clock.set(seconds)
    assert runs(load(store, other)) == set()
    clock.turn(25)
    clock.set(-seconds / 2)
    assert runs(load(store, other)) == set(), "it may still be heard"
    assert store.jobs.heartbeat(dead, NOTHING).leases
    clock.turn(25)
    assert runs(load(store, other)) == set()
    clock.turn(6)
    assert runs(load(store, other)) == {1}
    with pytest.raises(Fenced):
        store.jobs.heartbeat(dead, NOTHING)


def test_a_full_answer_reuses_unchanged_leases(store: Store) -> None:
    """To make thousands of leases anew for every heartbeat takes longer than the rest of it."""
    declare(store, *(trigger(f"t{n}") for n in range(4)))
    job = join(store)
    before = load(store, job).leases
    assert store.jobs.heartbeat(job, NOTHING).leases is before
    clean(store, job, before[0].trigger_id)
    after = load(store, job).leases
    assert [(one.trigger_id, one.epoch) for one in after] == [(before[0].trigger_id, 2), *((one.trigger_id, 1) for one in before[1:])]
    assert all(one is other for one, other in zip(after[1:], before[1:], strict=True))


def shards(total: int) -> list[DeclaredTrigger]:
    """Return the triggers of one watch, whose upstream has this number of shards."""
    names = ["orders"] if total == 1 else [f"orders#{number}-of-{total}" for number in range(total)]
    return [trigger(name, stream=name) for name in names]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 4)])
def test_no_shard_is_leased_while_a_shard_of_another_number_is_read(store: Store, before: int, after: int) -> None:
    declare(store, *shards(before), trigger("other", stream="folder"))
    first = join(store)
    old = runs(load(store, first))
    second = join(store)
    declare(store, *shards(after), trigger("other", stream="folder"))
    for _ in range(3):
        assert not runs(load(store, second)) - old, "the first job has not released its streams"
        assert load(store, first).leases == [lease for lease in load(store, first).leases if lease.trigger_id in old]
    clean(store, first, *load(store, first).revoked)
    shares = rest(store, first, second)
    with store.reading() as connection:
        live = {row.id for row in connection.execute(select(triggers).where(triggers.c.state != "removed"))}
    assert shares[first] | shares[second] == live
    assert len(live) == after + 1


def test_streams_that_only_look_like_shards_run_side_by_side(store: Store) -> None:
    names = ("events", "events#0-of-2", "events#3-of-4")
    declare(store, *(trigger(name, stream=name) for name in names))
    job = join(store)
    assert len(runs(load(store, job))) == 3
