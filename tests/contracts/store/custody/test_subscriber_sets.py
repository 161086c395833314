"""The contract of subscriber sets.

A receipt names who owed it by a digest, sets are written as differences, and what is old is summed up.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Set
from typing import Any

import pytest
from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy import event as on

from headrace.core.ledger.subscriber_sets import EMPTY, digest_text, subscriber_set_digest
from headrace.errors import ApiRefused
from headrace.store import Store
from headrace.store.custody import subscriber_sets as store_subscriber_sets
from headrace.store.custody.lanes import CHECK_INTERVAL_MICROS, idle_lanes
from headrace.store.custody.pruning import CUSTODY_SWEEPS, ended_waits
from headrace.store.custody.subscriber_sets import MAX_UNMERGED_SETS, old_subscriber_sets
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import backlog, lanes, recorded_streams, subscriber_sets, trigger_answers
from headrace.store.tables.task_runs import task_runs
from headrace.wire.control.jobs import Heartbeat
from headrace.wire.control.streams import LaneReport, StreamReport
from headrace.wire.control.triggers import CleanupTriggers
from headrace.wire.custody.receipts import Receipt, SubscriberSetDefinition
from headrace.wire.task_runs import AwaitedTrigger, StartRun, WaitCondition
from support.processes.store import Holder, TurnedClock, declaration, holder
from support.sources.custody import STREAM, answered, balance, books, counts, keep, marks, receipt, record, settle, spill, status

DAY = 86_400
SEEDS = [1, 2, 3]


@pytest.fixture
def owner(store: Store) -> Holder:
    return holder(store, "first", "second", "third")


def define(owner: Holder, joined: set[int], departed: Set[int] = frozenset(), base: int | None = None) -> tuple[bool, int]:
    digest = subscriber_set_digest(joined, departed, EMPTY if base is None else base)
    subscriber_set = SubscriberSetDefinition(
        stream=STREAM,
        digest=digest_text(digest),
        base=None if base is None else digest_text(base),
        joined=sorted(joined),
        departed=sorted(departed),
    )
    return owner.store.receipts.define(owner.job_id, subscriber_set).defined, digest


def by_subscriber_set(subscriber_set: int, after: int | None, last: int, read: int, *answers: int, lane: str = "a.jsonl") -> Receipt:
    fired = [answered(trigger, fired=1) for trigger in answers]
    return Receipt(
        stream=STREAM, lane=lane, after=after, last=last, read=read, owed=[], subscriber_set=digest_text(subscriber_set), answers=fired
    )


def sweep(store: Store, before: int | None = None) -> int:
    """Forget what there is to forget, 50 rows at a time."""
    gone = 0
    for one in CUSTODY_SWEEPS:
        while True:
            now = store.prune(lambda connection, one=one: one(connection, store.now() if before is None else before, 50))  # type: ignore[misc]
            gone += now
            if not now:
                break
    return gone


def test_a_subscriber_set_is_defined_as_a_difference_and_used_by_receipts(store: Store, owner: Holder) -> None:
    _, both = define(owner, {1, 2})
    _, third = define(owner, {3}, {1}, both)
    assert define(owner, {1, 2}) == (True, both)
    assert status(owner, by_subscriber_set(both, None, 9, 10, 1), by_subscriber_set(third, 9, 12, 3)) == ["stored", "stored"]
    record(owner, receipt(12, 13, 1, owed=(2, 3)))
    assert counts(store) == {"read": 10, "fired": 1, "filtered": 9}
    assert (counts(store, "second")["read"], counts(store, "third")["read"]) == (14, 4)
    assert books(store).clean
    with store.reading() as connection:  # the set that was named one by one is the one that was defined
        assert connection.execute(select(func.count()).select_from(subscriber_sets)).scalar_one() == 2


def test_unknown_bases_and_wrong_digests_define_no_subscriber_set(store: Store, owner: Holder) -> None:
    assert define(owner, {2}, base=subscriber_set_digest([7])) == (False, subscriber_set_digest([2, 7]))
    wrong = SubscriberSetDefinition(stream=STREAM, digest=digest_text(subscriber_set_digest([1])), joined=[1, 2])
    with pytest.raises(ApiRefused, match="digest"):
        store.receipts.define(owner.job_id, wrong)
    assert status(owner, by_subscriber_set(subscriber_set_digest([2]), None, 1, 1)) == ["unknown_subscriber_set"]
    assert marks(owner) == {}


def test_receipts_by_subscriber_set_are_fenced_by_the_stream(store: Store, owner: Holder) -> None:
    _, subscriber_set = define(owner, {1, 2, 3})
    store.projects.declare(owner.job_id, "flights", declaration("first", "second", "third", n=1))
    store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=[1, 2, 3]))
    assert status(owner, by_subscriber_set(subscriber_set, None, 1, 1)) == ["stored"], (
        "nobody else has the stream: what was answered is true"
    )
    other = holder(store)
    assert set(other.epochs) == {1, 2, 3}
    assert status(owner, by_subscriber_set(subscriber_set, 1, 2, 1)) == ["fenced"]
    assert status(other, by_subscriber_set(subscriber_set, 1, 2, 1)) == ["stored"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_merging_subscriber_sets_preserves_the_totals_of_each_trigger(store: Store, seed: int) -> None:
    """Sets that change at random, named at random, also late; a subscriber set that was merged is defined again, as the recorder does."""
    chance = random.Random(seed)
    owner = holder(store, *(f"t{number}" for number in range(1, 13)))
    everyone = sorted(owner.epochs)
    expected = dict.fromkeys(everyone, 0)
    position, last = 0, (EMPTY, frozenset[int]())
    named: list[tuple[int, frozenset[int]]] = []
    base: int | None
    for _ in range(4 * MAX_UNMERGED_SETS):
        members = (
            frozenset(chance.sample(everyone, chance.randint(1, 12))) if chance.random() < 0.2 else last[1] ^ {chance.choice(everyone)}
        )
        base = last[0] if last[1] and chance.random() < 0.8 else None
        before = last[1] if base is not None else frozenset()
        defined, digest = define(owner, set(members - before), set(before - members), base)
        if not defined:
            defined, digest = define(owner, set(members))
        assert defined
        last = (digest, members)
        named.append(last)
        for digest, owed in {last, chance.choice(named[-20:])}:
            read = chance.randint(1, 5)
            stretch = by_subscriber_set(digest, position or None, position + read, read)
            if status(owner, stretch) == ["unknown_subscriber_set"]:
                assert define(owner, set(owed))[0]
                assert status(owner, stretch) == ["stored"]
            position += read
            for trigger in owed:
                expected[trigger] += read
        if chance.random() < 0.05:
            sweep(store, before=0)
    sweep(store, before=0)
    owed_in_all = {one.trigger: one.read for one in books(store).streams[0].triggers}
    assert owed_in_all == {f"t{trigger - everyone[0] + 1}": n for trigger, n in expected.items()}, f"seed {seed}"
    assert books(store).clean
    with store.reading() as connection:
        assert connection.execute(select(func.count()).select_from(subscriber_sets)).scalar_one() <= 2 * MAX_UNMERGED_SETS


@pytest.mark.slow
def test_triggers_of_ended_runs_on_a_stream_are_merged_into_sums(store: Store, owner: Holder) -> None:
    """2,000 runs that wait, and others that come and go: a set is written as a difference, and what ended is one row."""
    _, subscriber_set = define(owner, set(range(1_000, 3_000)))
    for number in range(400):
        joined, departed = {3_000 + number}, {1_000 + number}
        _, after = define(owner, joined, departed, subscriber_set)
        assert status(owner, by_subscriber_set(after, number or None, number + 1, 1, 1_000 + number)) == ["stored"]
        subscriber_set = after
    with store.reading() as connection:
        texts = connection.execute(
            select(func.sum(func.length(subscriber_sets.c.joined) + func.length(subscriber_sets.c.departed)))
        ).scalar_one()
    assert texts < 2_000 * 6 + 400 * 20
    before = books(store)
    assert [(one.trigger, one.read, one.fired) for one in before.streams[0].triggers] == [("task runs", 2_000 * 400, 400)]
    sweep(store)
    assert books(store) == before
    with store.reading() as connection:
        sizes: list[int] = [
            connection.execute(select(func.count()).select_from(table)).scalar_one() for table in (subscriber_sets, trigger_answers)
        ]
    assert MAX_UNMERGED_SETS <= sizes[0] <= 2 * MAX_UNMERGED_SETS
    assert sizes[1] == 1


def merged(store: Store) -> list[tuple[int, int]]:
    """Merge subscriber sets until nothing is left.

    Return how many rows of subscriber sets and of trigger answers each transaction changed. Its books stay the same.
    """
    engine, rows = store._database._writer._engine, Counter[str]()
    before, found = books(store), []

    @on.listens_for(engine, "before_cursor_execute")
    def note(_connection: object, cursor: Any, statement: str, given: Any, *_: object) -> None:
        if statement.startswith(("UPDATE subscriber_sets", "INSERT INTO trigger_answers")):
            rows["sets" if statement.startswith("UPDATE") else "answers"] += len(given) if isinstance(given, list) else 1

    while store.prune(lambda connection: old_subscriber_sets(connection, 0, 500)):
        found.append((rows["sets"], rows["answers"]))
        rows.clear()
        assert books(store) == before, "also where the api dies after this one"
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_subscriber_sets_that_differ_by_many_members_are_merged_in_slices(
    store: Store, owner: Holder, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_subscriber_sets, "MAX_UNMERGED_SETS", 3)
    monkeypatch.setattr(store_subscriber_sets, "MAX_CHANGED_MEMBERS", 15)
    monkeypatch.setattr(store_subscriber_sets, "MERGED_BYTES", 600)
    chance = random.Random(seed)
    names = [f"t{number:02}" for number in range(100)]
    owner = holder(store, *names)
    with store.reading() as connection:
        everyone = connection.execute(select(triggers.c.id).where(triggers.c.state != "removed").order_by(triggers.c.id)).scalars().all()
    base, known = define(owner, set(everyone))[1], set(everyone)
    for position in range(1, 10):
        members = set(chance.sample(everyone, chance.choice([5, 30, 60, 90])))
        if chance.random() < 0.7:
            _, digest = define(owner, members - known, known - members, base)
        else:
            _, digest = define(owner, members)
        assert status(owner, by_subscriber_set(digest, position - 1 or None, position, chance.randint(1, 5))) == ["stored"]
        if chance.random() < 0.5:
            base, known = digest, members
    changed = merged(store)
    assert len(changed) > 3
    assert max(one for _, one in changed) <= 16, "and one row for runs that ended"
    with store.reading() as connection:
        assert connection.execute(select(func.count()).select_from(subscriber_sets)).scalar_one() <= 6


def test_a_partly_merged_subscriber_set_is_unknown_by_its_digest(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_subscriber_sets, "MAX_UNMERGED_SETS", 1)
    monkeypatch.setattr(store_subscriber_sets, "MAX_CHANGED_MEMBERS", 1)
    _, all_of = define(owner, {1, 2, 3})
    assert status(owner, by_subscriber_set(all_of, None, 10, 10)) == ["stored"]
    for number, subscriber_set in enumerate([{9}, {9, 8}], 1):
        _, digest = define(owner, subscriber_set)
        assert status(owner, by_subscriber_set(digest, 9 + number, 10 + number, 1)) == ["stored"]
    assert store.prune(lambda connection: old_subscriber_sets(connection, 0, 500)) == 1
    assert status(owner, by_subscriber_set(all_of, 12, 14, 2)) == ["unknown_subscriber_set"]
    assert define(owner, {4}, {1}, all_of)[0] is False
    assert define(owner, {1, 2, 3}) == (True, all_of)
    assert status(owner, by_subscriber_set(all_of, 12, 14, 2)) == ["stored"]
    merged(store)
    assert (counts(store, "first")["read"], counts(store, "third")["read"]) == (12, 12)


def test_an_idle_lane_is_pruned_and_its_sum_remains(store: Store, owner: Holder, clock: TurnedClock) -> None:
    for name in ("done", "reported", "kept", "later"):
        record(owner, receipt(None, 9, 10, answered(1, fired=2), lane=name))
    keep(owner, spill(20, 2, lane="kept"))
    store.jobs.heartbeat(
        owner.job_id, Heartbeat(streams=[StreamReport(stream=STREAM, state="polling", lanes=[LaneReport(lane="reported")])])
    )
    clock.turn(DAY)
    record(owner, receipt(9, 10, 1, lane="later"))
    before = books(store)
    sweep(store, store.now() - DAY // 2 * 1_000_000)
    assert marks(owner) == {"reported": 9, "kept": 9, "later": 10}
    assert books(store) == before.model_copy(update={"at": books(store).at})
    assert counts(store) == {"read": 41, "fired": 8, "filtered": 33}
    assert (books(store).streams[0].lanes, books(store).streams[0].read) == (4, 41)
    record(owner, receipt(9, 12, 3, lane="done"))
    assert books(store).clean, "who knows where the lane was goes on there"


def test_each_round_examines_unprunable_lanes_once(store: Store, owner: Holder, clock: TurnedClock) -> None:
    for number in range(6):
        record(owner, receipt(None, 9, 10, answered(1, fired=2), lane=f"held-{number}"))
        keep(owner, spill(20, 2, lane=f"held-{number}"))
    clock.turn(1)
    record(owner, receipt(None, 9, 10, answered(1, fired=2), lane="idle"))
    clock.turn(DAY)
    looked = [store.prune(lambda connection: idle_lanes(connection, store.now(), 4)) for _ in range(3)]
    assert looked == [4, 3, 0]
    assert sorted(marks(owner)) == [f"held-{number}" for number in range(6)]
    store.prune(lambda connection: connection.execute(delete(backlog)).rowcount)
    assert store.prune(lambda connection: idle_lanes(connection, store.now(), 9)) == 0, "not again in this round"
    clock.turn(CHECK_INTERVAL_MICROS // 1_000_000 + 1)
    assert store.prune(lambda connection: idle_lanes(connection, store.now(), 9)) == 6
    assert marks(owner) == {}
    with store.reading() as connection:
        summed = connection.execute(select(recorded_streams.c.lanes, recorded_streams.c.read)).one()
    assert summed == (7, 70)


def test_an_idle_lane_without_a_receipt_is_pruned_with_its_early_answers(store: Store, owner: Holder, clock: TurnedClock) -> None:
    """An upstream without positions has other lanes after each opening: no receipt of the former ones comes."""
    for opening in range(3):
        keep(owner, *(spill(position, 1, lane=f"queue@{opening}") for position in range(1, 6)))
        settle(owner, "fired")
    keep(owner, spill(1, 2, lane="queue@0"))
    clock.turn(DAY)
    looked: list[int] = []
    while not looked or looked[-1]:
        looked.append(store.prune(lambda connection: idle_lanes(connection, store.now(), 4)))
    assert all(count <= 4 for count in looked)
    with store.reading() as connection:
        assert connection.execute(select(lanes.c.lane)).scalars().all() == ["queue@0"]
        assert connection.execute(select(func.count()).select_from(backlog)).scalar_one() == 6
    settle(owner, "fired", trigger=2)
    clock.turn(CHECK_INTERVAL_MICROS // 1_000_000 + 1)
    while store.prune(lambda connection: idle_lanes(connection, store.now(), 4)):
        pass
    with store.reading() as connection:
        assert connection.execute(select(lanes.c.lane)).scalars().all() == []
        assert connection.execute(select(func.count()).select_from(backlog)).scalar_one() == 0


def test_the_last_movement_of_a_lane_is_updated_once_an_hour(store: Store, owner: Holder, clock: TurnedClock) -> None:
    moved = []
    for position in range(1, 5):
        record(owner, receipt(position - 1 if position > 1 else None, position, 1))
        with store.reading() as connection:
            moved.append((connection.execute(select(lanes.c.moved)).scalar_one() - clock.now) // 60_000_000)
        clock.turn(1_200)
    assert moved == [0, -20, -40, -60]
    record(owner, receipt(4, 5, 1))
    with store.reading() as connection:
        assert connection.execute(select(lanes.c.moved)).scalar_one() == clock.now


def test_the_trigger_of_an_ended_run_is_pruned(store: Store, owner: Holder) -> None:
    awaited = AwaitedTrigger(classpath="some.Trigger", kwargs={})
    for run in ("a", "b", "c"):
        store.task_runs.start("flights", StartRun(run_id=run, task="t", waiting=WaitCondition(method="m", trigger=awaited)))
    owner.load()
    runs = sorted(set(owner.epochs) - {1, 2, 3})
    record(owner, receipt(None, 3, 3, answered(runs[0], fired=1), owed=(1, *runs)))
    store.prune(lambda connection: _end(connection, ["a", "c"]))
    before = books(store)
    store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=[runs[0], runs[2]]))
    assert store.prune(lambda connection: ended_waits(connection, 0, 10)) == 2
    sweep(store)
    assert books(store) == before
    assert balance(store, "task runs").fired == 1
    with store.reading() as connection:
        assert connection.execute(select(triggers.c.id).order_by(triggers.c.id)).scalars().all() == [1, 2, 3, runs[1]]
        assert connection.execute(select(trigger_answers.c.trigger_id)).scalars().all() == [0]


def _end(connection: Connection, run_ids: list[str]) -> int:
    connection.execute(update(task_runs).where(task_runs.c.run_id.in_(run_ids)).values(finished=1, state="succeeded"))
    gone = triggers.c.run_id.in_(run_ids)
    connection.execute(update(triggers).where(gone).values(state="removed", revoked_job_id=triggers.c.job_id, job_id=None))
    return 0


def test_settled_answers_of_a_pruned_lane_still_count(store: Store, owner: Holder, clock: TurnedClock) -> None:
    keep(owner, spill(1), spill(2))
    record(owner, receipt(None, 2, 2, answered(1, spilled=2)))
    settle(owner, "fired")
    clock.turn(1)
    sweep(store)
    assert marks(owner) == {}
    assert counts(store) == {"read": 2, "fired": 2, "spilled": 2, "settled": 2}
