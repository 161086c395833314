"""The contract of positions: a lookup returns each block that may have an event, and a block is pruned with the last of its events."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from sqlalchemy import func, select

from headrace.errors import Fenced
from headrace.store import Store
from headrace.store.db.ages import AgeLimit
from headrace.store.pipelines import event_positions
from headrace.store.retention.event_log import logged_events
from headrace.store.retention.pruner import Pruner
from headrace.store.tables.pipelines import event_positions as stored
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor
from headrace.wire.pipelines.plans import MAX_POSITION_SEQS, Plan, PositionBlock
from support.pipelines.plans import driver, plan, planned, report
from support.processes.store import event, holder

SEEDS = [20261122, 20261123]


def block(first: int, last: int, data: bytes | None = None) -> PositionBlock:
    return PositionBlock(first=first, last=last, data=f"{first}-{last}".encode() if data is None else data)


def planned_blocks(batch: int, *blocks: PositionBlock, cursor: int = 0) -> Plan:
    return plan(batch, cursor=Cursor(cursor=cursor, batch=batch), positions=list(blocks))


def scope(store: Store) -> int:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    return job


def count(store: Store) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(stored)).scalar_one())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lookup_returns_exactly_the_blocks_that_may_have_the_event(store: Store, seed: int) -> None:
    random = Random(seed)
    job = scope(store)
    known: list[PositionBlock] = []
    for batch in range(1, 20):
        made, seq = list[PositionBlock](), random.randrange(50_000)
        for _ in range(random.randrange(5)):
            last = seq + random.choice([0, 5, 900, MAX_POSITION_SEQS - 1])
            made.append(block(seq, last, f"{batch}: {seq}".encode()))
            seq = last + 1 + random.randrange(3_000)
        store.plans.store(job, "s", planned_blocks(batch, *made))
        known += made
    ends = [seq for one in known for seq in (one.first - 1, one.first, one.last, one.last + 1) if seq >= 0]
    for _ in range(30):
        seqs = sorted(random.choices(ends, k=random.choice([1, 3, 40])))
        found = store.plans.positions(job, "s", seqs)
        assert sorted(found.blocks) == sorted(one.data for one in known if any(one.first <= seq <= one.last for seq in seqs))
        assert found.to is None


def test_an_answer_is_bounded_in_bytes_and_has_its_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_positions, "MAX_SLICE_BYTES", 250)
    job = scope(store)
    store.plans.store(job, "s", planned_blocks(1, *(block(n * 10, n * 10 + 5, bytes([n]) * 100) for n in range(6))))
    store.plans.store(job, "s", planned_blocks(2, block(0, 55, b"x" * 100)))
    seqs = [1, 12, 21, 22, 33, 49, 51]
    answers = []
    while seqs:
        found = store.plans.positions(job, "s", seqs)
        answers.append((sorted(one[:1] for one in found.blocks), found.to))
        seqs = [] if found.to is None else [seq for seq in seqs if seq > found.to]
    ends = [11, 20, 32, 50, None]
    assert answers == [([bytes([n]), b"x"], end) for n, end in zip([0, 1, 2, 3, 5], ends, strict=True)]


def test_a_repeated_plan_stores_positions_once_and_a_fenced_driver_reads_none(store: Store) -> None:
    job = scope(store)
    for _ in range(2):
        store.plans.store(job, "s", planned_blocks(1, block(1, 9)))
    assert count(store) == 1
    store.jobs.complete(job, CompleteJob(state="failed"))
    with pytest.raises(Fenced):
        store.plans.positions(job, "s", [1])
    heir = scope(store)
    assert store.plans.positions(heir, "s", [1, 10]).blocks == [b"1-9"]
    store.jobs.complete(heir, CompleteJob(state="failed"))
    assert store.scopes.reset("s", 1) is not None
    assert count(store) == 0, "the scope that was reset has other positions"
    assert store.plans.positions(scope(store), "s", [1]).blocks == []


@pytest.mark.parametrize("most", [2, 500])
def test_a_block_is_pruned_with_the_last_of_its_events(store: Store, most: int) -> None:
    holder(store, "first").append(*(event(f"{n}") for n in range(20)))
    job = scope(store)
    blocks = [block(1, 3), block(4, 9), block(10, 12), block(13, 18), block(19, 20)]
    store.plans.store(job, "s", planned_blocks(1, *blocks, cursor=18))
    runs = plan(2, planned(0, 0, first=5, last=6, events=2), cursor=Cursor(cursor=18, batch=2), positions=[block(2, 11)])
    store.plans.store(job, "s", runs)
    store.runs.report(job, [report(2, seqs=[(5, 6)], state="failed", dead_letter="l")])
    old = AgeLimit(before=2**62, head=2**62, next_head=2**62, received=0, keys=0)
    after = 0
    while not (swept := store.write(partial(logged_events, old=old, limit=500, after=after))).done:
        after = swept.position
    deleted = []
    while gone := store.write(partial(event_positions.positions, before=0, limit=most)):
        assert gone <= most
        deleted.append(gone)
    assert sum(deleted) == 3
    assert sorted(store.plans.positions(job, "s", list(range(1, 21))).blocks) == [b"19-20", b"2-11", b"4-9"]
    Pruner(store, days=30).prune()
    assert count(store) == 3
    with pytest.raises(ValueError, match="at most 8192 seqs"):
        block(1, 1 + MAX_POSITION_SEQS)
