"""The contract of leases in slices: correct after a crash of the API server between two slices, and with two concurrent jobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, select

from headrace.store import Store
from headrace.store.control import balancing, declarations, held_leases, leases, projects
from headrace.store.tables.control import triggers
from headrace.triggerer.supervisor.held_leases import HeldLeases
from headrace.wire.control.jobs import CompleteJob, Heartbeat
from headrace.wire.control.triggers import CleanupTriggers, LoadTriggers
from support.processes.store import TurnedClock, declaration, holder, registration

SLICE = 3
MANY = 10
ALL = set(range(1, MANY + 1))


class Died(Exception):
    """The api dies here."""


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MAX_CHANGED_LEASES", SLICE)
    monkeypatch.setattr(held_leases, "MAX_CHANGES", 4)
    monkeypatch.setattr(declarations, "MAX_SLICE_TRIGGERS", SLICE)


def declared(store: Store, stream: str | None = "folder") -> int:
    """Declare many triggers with a job that runs nothing."""
    job = store.jobs.register(registration(kind="pipeline"))
    store.projects.declare(job.id, "flights", declaration(*(f"t{n:02}" for n in range(MANY)), stream=stream))
    return job.id


def join(store: Store) -> int:
    return store.jobs.register(registration()).id


def holders(store: Store) -> dict[int | None, set[int]]:
    """Return who holds which triggers."""
    found: dict[int | None, set[int]] = {}
    with store.reading() as connection:
        for row in connection.execute(select(triggers.c.job_id, triggers.c.id)):
            found.setdefault(row.job_id, set()).add(row.id)
    return found


def removed(store: Store) -> set[int]:
    with store.reading() as connection:
        return set(connection.execute(select(triggers.c.id).where(triggers.c.state == "removed")).scalars())


def dying_after(slices: int, work: Callable[..., Any]) -> Callable[..., Any]:
    """Return the work, which raises once it has been done for so many slices."""
    left = slices

    def slice(*given: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died
        return work(*given, **more)

    return slice


def load_dying(store: Store, monkeypatch: pytest.MonkeyPatch, job_id: int, work: str, slices: int) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(leases, work, dying_after(slices, getattr(leases, work)))
        with pytest.raises(Died):
            store.triggers.load(job_id, LoadTriggers(capacity=100))


def test_only_the_same_job_completes_an_interrupted_acquisition(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    declared(store)
    first, other = join(store), join(store)
    load_dying(store, monkeypatch, first, "acquire", 2)
    assert holders(store) == {first: set(range(1, 7)), None: set(range(7, 11))}
    assert store.triggers.load(other, LoadTriggers(capacity=100)).leases == []
    answer = store.triggers.load(first, LoadTriggers(capacity=100))
    assert {(lease.trigger_id, lease.epoch) for lease in answer.leases} == {(one, 1) for one in ALL}


def test_a_stream_is_leased_to_only_one_of_two_competing_jobs(store: Store) -> None:
    """Both decided before either claimed; their slices come in turns."""
    declared(store)
    first, other = join(store), join(store)
    for job_id, ids in [
        (first, [1, 2, 3]),
        (other, [1, 2, 3]),
        (other, [4, 5, 6]),
        (first, [4, 5, 6]),
        (other, [7]),
        (first, [7, 8, 9, 10]),
    ]:
        store.write(partial(leases.acquire, job_id=job_id, project="flights", trigger_ids=ids, now=store.now()))
    assert holders(store) == {first: ALL}


def test_a_stream_with_a_revoked_but_running_trigger_is_not_acquired(store: Store) -> None:
    declared(store)
    first, other = join(store), join(store)

    def revoked(connection: Connection) -> None:
        leases.acquire(connection, first, "flights", [1], store.now())
        leases.revoke(connection, [1])
        leases.acquire(connection, other, "flights", [1, 2, 3], store.now())

    store.write(revoked)
    assert holders(store) == {None: ALL}
    store.write(partial(leases.acquire, job_id=first, project="flights", trigger_ids=[1, 2], now=store.now()))
    assert holders(store) == {first: {1, 2}, None: ALL - {1, 2}}


def test_a_draining_job_acquires_no_leases(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    declared(store)
    job = join(store)
    decide = balancing.Balancer._decide

    def decided(self: balancing.Balancer, job_id: int, project: str) -> balancing.Decision:
        found = decide(self, job_id, project)
        store.jobs.set_desired_state(job_id, "drain")
        return found

    monkeypatch.setattr(balancing.Balancer, "_decide", decided)
    assert store.triggers.load(job, LoadTriggers(capacity=100)).leases == []


def test_an_interrupted_revocation_continues(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    declared(store)
    first, other = join(store), join(store)
    store.triggers.load(first, LoadTriggers(capacity=100))
    store.triggers.load(other, LoadTriggers(capacity=100))
    store.jobs.set_desired_state(first, "drain")
    load_dying(store, monkeypatch, first, "request_release", 1)
    store.jobs.set_desired_state(first, "run")  # also where it is not wanted any more: a part of the stream may have been stopped
    answer = store.triggers.load(first, LoadTriggers(capacity=100))
    assert set(answer.revoked) == ALL
    store.triggers.cleanup(first, CleanupTriggers(trigger_ids=[1, 2, 3]))
    assert store.triggers.load(other, LoadTriggers(capacity=100)).leases == [], "the rest has not stopped"
    store.triggers.cleanup(first, CleanupTriggers(trigger_ids=sorted(ALL)))
    store.triggers.load(first, LoadTriggers(capacity=100))
    store.triggers.load(other, LoadTriggers(capacity=100))
    assert {len(held) for held in holders(store).values()} == {MANY}


def test_stopped_triggers_are_released_in_slices(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    declared(store)
    owner = holder(store)
    gone = CleanupTriggers(trigger_ids=sorted(ALL))
    with monkeypatch.context() as patched:
        patched.setattr(leases, "release", dying_after(2, leases.release))
        with pytest.raises(Died):
            store.triggers.cleanup(owner.job_id, gone)
    assert len(holders(store)[owner.job_id]) == MANY - 2 * SLICE
    store.triggers.cleanup(owner.job_id, gone)  # the runner asks again
    assert holders(store) == {None: ALL}


@pytest.mark.parametrize("end", ["complete", "replace", "silent"])
def test_all_leases_of_an_ended_job_are_released_immediately(store: Store, clock: TurnedClock, end: str) -> None:
    declared(store)
    owner = holder(store, registration_id="the owner")
    if end == "complete":
        store.jobs.complete(owner.job_id, CompleteJob(state="succeeded"))
    elif end == "replace":
        store.jobs.register(registration(replaces="the owner"))
    else:
        witness = store.jobs.register(registration(kind="pipeline")).id
        store.jobs.heartbeat(witness, Heartbeat())
        clock.turn(20)
        store.jobs.heartbeat(witness, Heartbeat())
        clock.turn(20)
        store.jobs.heartbeat(witness, Heartbeat())
    assert holders(store) == {None: ALL}


@pytest.mark.parametrize("slices", [1, 2])
def test_the_next_load_releases_remaining_leases_of_an_ended_job(store: Store, monkeypatch: pytest.MonkeyPatch, slices: int) -> None:
    declared(store)
    owner = holder(store)
    with monkeypatch.context() as patched:
        patched.setattr(leases, "release_ended", dying_after(slices, leases.release_ended))
        with pytest.raises(Died):
            store.jobs.complete(owner.job_id, CompleteJob(state="succeeded"))
    assert len(holders(store)[owner.job_id]) == MANY - SLICE * slices
    heir = join(store)
    answer = store.triggers.load(heir, LoadTriggers(capacity=100))
    assert {(lease.trigger_id, lease.epoch) for lease in answer.leases} == {(one, 2) for one in ALL}


def test_undeclared_triggers_are_removed_in_slices(store: Store) -> None:
    job = declared(store)
    owner = holder(store)
    assert store.projects.declare(job, "flights", declaration("t05")).triggers == {"t05": 6}
    assert removed(store) == ALL - {6}
    assert set(store.triggers.load(owner.job_id, LoadTriggers(capacity=100)).revoked) == ALL - {6}


def test_a_newer_declaration_stops_the_removal_of_triggers(store: Store) -> None:
    declared(store)
    before = store.now() - 1
    more = partial(projects._remove_more, project="flights", names=set(), after=0)
    assert store.write(partial(more, now=before)) == 0
    assert removed(store) == set()
    assert store.write(partial(more, now=store.now())) == SLICE
    assert removed(store) == {1, 2, 3}


class Triggerer:
    """A job that loads differences."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.job_id = join(store)
        self.known = HeldLeases()
        self.runs: dict[int, int] = {}
        self.answers = 0

    def load(self) -> dict[int, int]:
        while True:
            loaded = self.store.triggers.load(self.job_id, LoadTriggers(capacity=100, since=self.known.revision))
            assert len(loaded.leases) + len(loaded.removed) <= 4
            self.known.update(loaded)
            self.answers += 1
            if not loaded.more:
                break
        due = self.known.due(self.runs)
        for one in due.stop:
            del self.runs[one]
        self.runs.update(self.known.epochs(due.start))
        self.known.done()
        return self.runs


def test_differences_add_up_to_all_held_leases(store: Store) -> None:
    job = declared(store)
    triggerer = Triggerer(store)
    assert triggerer.load() == dict.fromkeys(ALL, 1)
    assert triggerer.answers == 3
    triggerer.load()
    assert triggerer.answers == 4, "where nothing changed there is nothing to tell"
    store.projects.declare(job, "flights", declaration("t00", "t01"))
    assert triggerer.load() == {1: 1, 2: 1}
    assert set(triggerer.known.revoked) == set(triggerer.known.dropped()) == ALL - {1, 2}
    store.triggers.cleanup(triggerer.job_id, CleanupTriggers(trigger_ids=sorted(ALL - {1, 2})))
    assert triggerer.load() == {1: 1, 2: 1}
    assert not triggerer.known.revoked
    store.projects.declare(job, "flights", declaration("t00", "t01", "t02", more=1))
    assert triggerer.load() == {1: 2, 2: 2, 3: 2}


def test_an_unknown_revision_gets_all_leases(store: Store) -> None:
    job = declared(store)
    triggerer = Triggerer(store)
    triggerer.load()
    store.projects.declare(job, "flights", declaration("t00", "t01"))
    # an answer that never came: the api has told more than its job knows
    lost = store.triggers.load(triggerer.job_id, LoadTriggers(capacity=100, since=triggerer.known.revision))
    assert lost.more
    assert triggerer.load() == {1: 1, 2: 1}
    assert set(triggerer.known.revoked) == ALL - {1, 2}


def test_a_slow_load_is_answered_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    declared(store)
    triggerer = Triggerer(store)
    moments = iter(range(1_000))
    monkeypatch.setattr(balancing, "monotonic", lambda: next(moments) * 2.0)
    assert triggerer.load() == dict.fromkeys(ALL, 1)
    assert triggerer.answers > 3


def test_a_heartbeat_has_leases_only_on_request(store: Store) -> None:
    declared(store)
    owner = holder(store)
    assert len(store.jobs.heartbeat(owner.job_id, Heartbeat()).leases) == MANY
    assert store.jobs.heartbeat(owner.job_id, Heartbeat(leases=False)).leases == []
