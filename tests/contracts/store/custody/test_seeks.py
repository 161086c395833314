"""The contract of seeks: planned once, begun with the first recorded positions, done once all lanes are moved, and named by the audit."""

from __future__ import annotations

import secrets

import pytest

from headrace.errors import ApiRefused, Fenced
from headrace.store import Store
from headrace.store.custody.seeks import old_seeks, seek_list
from headrace.store.queries.audit import audit
from headrace.store.retention.pruner import Pruner
from headrace.wire.control.triggers import CleanupTriggers, LoadTriggers
from headrace.wire.custody.events import EventBatch
from headrace.wire.custody.receipts import Answers, Receipt
from headrace.wire.custody.seeks import (
    EXPIRY_SECONDS,
    BeginSeek,
    FinishSeek,
    LaneMove,
    LanePosition,
    PendingSeek,
    PlannedLane,
    PlanSeek,
    SeekStatus,
    StreamSeek,
)
from support.processes.store import Holder, TurnedClock, declaration, holder, registration
from support.sources.custody import settle, spill

STREAM = "kafka:kafka/shop/orders"


@pytest.fixture
def owner(store: Store) -> Holder:
    return reader(store)


def reader(store: Store, stream: str = STREAM) -> Holder:
    """Return a triggerer that holds a trigger of the stream."""
    job = store.jobs.register(registration())
    store.projects.declare(job.id, "flights", declaration("first", stream=stream))
    made = Holder(store, job.id, {})
    made.load()
    return made


def plan(store: Store, id: str | None = None, *, who: str = "Ada", forward: bool = False, **lanes: int) -> SeekStatus:
    moved = [PlannedLane(lane=lane, position=position, forward=forward) for lane, position in lanes.items()]
    request = PlanSeek(plan=id or secrets.token_hex(8), target="earliest", streams=[StreamSeek(stream=STREAM, lanes=moved)])
    return store.stream_seeks.plan(request, who).seeks[0]


def pending(owner: Holder) -> PendingSeek | None:
    return owner.store.stream_logs.count_receipts(owner.job_id, STREAM).seek


def begin(owner: Holder, seek: SeekStatus, **moves: tuple[int | None, int]) -> dict[str, int]:
    lanes = [LaneMove(lane=lane, previous=previous, position=position) for lane, (previous, position) in moves.items()]
    begun = owner.store.stream_seeks.begin(owner.job_id, BeginSeek(stream=STREAM, seek=seek.id, lanes=lanes))
    return {one.lane: one.position for one in begun.lanes}


def finish(owner: Holder, seek: SeekStatus, *lanes: str) -> None:
    owner.store.stream_seeks.finish(owner.job_id, FinishSeek(stream=STREAM, seek=seek.id, lanes=list(lanes)))


def seeks(store: Store) -> list[SeekStatus]:
    with store.reading() as connection:
        return seek_list(connection, store.now(), limit=10).seeks


def record(owner: Holder, after: int | None, last: int, read: int, *answers: Answers, lane: str = "a") -> list[str]:
    receipt = Receipt(stream=STREAM, lane=lane, after=after, last=last, read=read, owed=[1], answers=list(answers))
    return list(owner.store.log.append(owner.job_id, EventBatch(epochs=owner.epochs, receipts=[receipt])).receipts)


def audited(store: Store) -> tuple[bool, list[tuple[str, str, int, int, str]], list[str]]:
    """Return whether the audit is clean, the ranges that seeks moved over, and the problems."""
    with store.reading() as connection:
        found = audit(connection, store.now())
    ranges = [(one.lane, str(one.what), one.first, one.last, one.who) for stream in found.streams for one in stream.seeks]
    return found.clean, ranges, [one.problem for stream in found.streams for one in stream.problems]


def test_the_audit_names_a_skipped_range_and_has_no_gap(store: Store, owner: Holder) -> None:
    record(owner, None, 9, 10)
    seek = plan(store, a=500)
    assert pending(owner) == PendingSeek(id=seek.id, lanes=[LanePosition(lane="a", position=500)])
    assert begin(owner, seek, a=(10, 500)) == {"a": 500}
    finish(owner, seek, "a")
    assert pending(owner) is None
    assert [(one.state, one.skipped, one.read_again) for one in seeks(store)] == [("done", 490, 0)]
    assert record(owner, 499, 510, 11) == ["stored"]
    assert audited(store) == (True, [("a", "skipped", 10, 499, "Ada")], [])


def test_what_is_read_again_is_a_duplicate_up_to_the_recorded_position(store: Store, owner: Holder) -> None:
    record(owner, None, 9, 10)
    seek = plan(store, a=4)
    begin(owner, seek, a=(10, 4))
    finish(owner, seek, "a")
    assert record(owner, 3, 8, 5) == ["duplicate"]
    assert record(owner, 9, 12, 3) == ["stored"]
    clean, ranges, problems = audited(store)
    assert (clean, ranges, problems) == (True, [("a", "read again", 4, 9, "Ada")], [])
    assert [(one.skipped, one.read_again) for one in seeks(store)] == [(0, 6)]


def test_a_raw_event_that_is_spilled_again_is_settled_again_and_counts_once(store: Store, owner: Holder) -> None:
    def spill_again() -> list[str]:
        item = spill(3, lane="a").model_copy(update={"stream": STREAM})
        return list(store.log.append(owner.job_id, EventBatch(epochs=owner.epochs, spills=[item])).spills)

    assert spill_again() == ["stored"]
    record(owner, None, 9, 10, Answers(trigger_id=1, spilled=1))
    settle(owner, "fired")
    seek = plan(store, a=0)
    begin(owner, seek, a=(10, 0))
    finish(owner, seek, "a")
    assert spill_again() == ["stored"]
    settle(owner, "fired")
    assert store.backlog.page(owner.job_id, 1, after=0, limit=10).depth == 0
    clean, _, problems = audited(store)
    assert (clean, problems) == (True, [])


def test_no_answer_of_a_skipped_range_waits_for_a_receipt(store: Store, owner: Holder) -> None:
    record(owner, None, 9, 10)
    item = spill(12, lane="a").model_copy(update={"stream": STREAM})
    store.log.append(owner.job_id, EventBatch(epochs=owner.epochs, spills=[item]))
    settle(owner, "fired")  # its receipt would have followed
    seek = plan(store, a=500)
    begin(owner, seek, a=(10, 500))
    finish(owner, seek, "a")
    assert list(store.log.append(owner.job_id, EventBatch(epochs=owner.epochs, spills=[item])).spills) == ["stored"]
    settle(owner, "fired")
    assert audited(store)[0]


def test_a_second_triggerer_moves_to_the_positions_that_the_first_one_recorded(store: Store, owner: Holder) -> None:
    seek = plan(store, a=500, b=7)
    begin(owner, seek, a=(10, 500))
    assert [one.state for one in seeks(store)] == ["moving"]
    assert begin(owner, seek, a=(500, 900), b=(1, 7)) == {"a": 500, "b": 7}, "a position is not recorded again"
    finish(owner, seek, "a")
    assert pending(owner) == PendingSeek(id=seek.id, lanes=[LanePosition(lane="b", position=7)])
    assert begin(owner, seek, a=(500, 500)) == {}, "a moved lane is not moved again"
    finish(owner, seek, "b", "unknown")
    assert [(one.state, [lane.previous for lane in one.lanes]) for one in seeks(store)] == [("done", [10, 1])]


def test_a_skip_does_not_move_a_lane_back_that_is_read_past_it_by_then(store: Store, owner: Holder) -> None:
    seek = plan(store, forward=True, a=100, b=100, c=100)
    assert begin(owner, seek, a=(120, 100), b=(90, 100), c=(None, 100)) == {"a": 120, "b": 100, "c": 100}
    finish(owner, seek, "a", "b", "c")
    assert [(one.state, one.skipped, one.read_again) for one in seeks(store)] == [("done", 10, 0)]


def test_a_lane_that_was_not_begun_is_not_finished(store: Store, owner: Holder) -> None:
    seek = plan(store, a=500)
    finish(owner, seek, "a")
    assert [one.state for one in seeks(store)] == ["planned"]


def test_a_plan_is_planned_once_and_releases_the_stream(store: Store, owner: Holder) -> None:
    first = plan(store, "0" * 16, a=500)
    assert store.triggers.load(owner.job_id, LoadTriggers(capacity=100)).revoked == {1: 1}
    store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=[1]))
    assert owner.load() == {1: 2}, "the same triggerer may open it"
    begin(owner, first, a=(10, 500))
    finish(owner, first, "a")
    assert plan(store, "0" * 16, a=500).id == first.id
    assert owner.load() == {1: 2}
    assert pending(owner) is None


def test_a_later_plan_replaces_one_that_no_triggerer_has_begun(store: Store, owner: Holder) -> None:
    first = plan(store, a=500)
    second = plan(store, who="Grace", a=3)
    assert [(one.state, one.who) for one in seeks(store)] == [("planned", "Grace"), ("replaced", "Ada")]
    assert begin(owner, first, a=(10, 500)) == {}
    begin(owner, second, a=(10, 3))
    with pytest.raises(ApiRefused, match=f"carrying out seek {second.id}"):
        plan(store, a=1)


def test_retention_deletes_seeks_that_are_over(store: Store, owner: Holder, clock: TurnedClock) -> None:
    record(owner, None, 9, 10)
    done = plan(store, a=500)
    begin(owner, done, a=(10, 500))
    finish(owner, done, "a")
    plan(store, a=600)
    plan(store, a=700)
    assert [seek.state for seek in seeks(store)] == ["planned", "replaced", "done"]
    clock.turn(EXPIRY_SECONDS - 1)
    assert [store.prune(lambda connection: old_seeks(connection, store.now(), 1)) for _ in range(3)] == [1, 1, 0]
    assert [seek.state for seek in seeks(store)] == ["planned"]
    clock.turn(2)
    Pruner(store, 1).prune()
    assert [seek.state for seek in seeks(store)] == ["expired"]
    clock.turn(2 * 86_400)
    Pruner(store, 1).prune()
    assert (seeks(store), audited(store)) == ([], (True, [], []))


def test_retention_keeps_a_seek_that_moves_lanes(store: Store, owner: Holder, clock: TurnedClock) -> None:
    record(owner, None, 9, 10)
    seek = plan(store, a=500)
    begin(owner, seek, a=(10, 500))
    clock.turn(100 * 86_400)
    Pruner(store, 1).prune()
    assert begin(owner, seek, a=(10, 500)) == {"a": 500}
    finish(owner, seek, "a")
    assert [one.state for one in seeks(store)] == ["done"]


def test_a_plan_expires_unless_it_is_begun(store: Store, owner: Holder, clock: TurnedClock) -> None:
    plan(store, a=500)
    clock.turn(EXPIRY_SECONDS)
    assert pending(owner) is None
    assert [one.state for one in seeks(store)] == ["expired"]
    begun = plan(store, a=500, b=7)
    begin(owner, begun, a=(10, 500))
    clock.turn(EXPIRY_SECONDS)
    assert pending(owner) == PendingSeek(id=begun.id, lanes=[LanePosition(lane="a", position=500)])
    assert begin(owner, begun, a=(500, 500), b=(1, 7)) == {"a": 500}
    finish(owner, begun, "a")
    assert [one.state for one in seeks(store)] == ["expired", "replaced"]


def test_only_the_holder_of_the_stream_moves_it(store: Store, owner: Holder) -> None:
    seek = plan(store, a=500)
    other = holder(store, project="others")
    for call in (lambda: begin(other, seek, a=(10, 500)), lambda: finish(other, seek, "a")):
        with pytest.raises(Fenced):
            call()
    assert [one.state for one in seeks(store)] == ["planned"]


def test_positions_that_are_made_of_times_have_no_number_of_messages(store: Store) -> None:
    stream = "redis:redis/shop/orders"
    owner = reader(store, stream)
    moved = [PlannedLane(lane="a", position=1 << 60, forward=True)]
    request = PlanSeek(plan="0" * 16, target="latest", streams=[StreamSeek(stream=stream, lanes=moved)])
    (seek,) = store.stream_seeks.plan(request, "Ada").seeks
    lanes = [LaneMove(lane="a", previous=1 << 50, position=1 << 60)]
    store.stream_seeks.begin(owner.job_id, BeginSeek(stream=stream, seek=seek.id, lanes=lanes))
    store.stream_seeks.finish(owner.job_id, FinishSeek(stream=stream, seek=seek.id, lanes=["a"]))
    assert [(one.state, one.skipped, one.read_again) for one in seeks(store)] == [("done", None, None)]
    assert audited(store)[1] == [("a", "skipped", 1 << 50, (1 << 60) - 1, "Ada")]


@pytest.mark.parametrize(
    ("streams", "text"),
    [
        ([StreamSeek(stream="kafka:other", lanes=[PlannedLane(lane="a", position=1)])], "No trigger reads"),
        ([StreamSeek(stream="sqs:orders", lanes=[PlannedLane(lane="a", position=1)])], "cannot seek"),
        ([StreamSeek(stream=STREAM, lanes=[PlannedLane(lane="a", position=1)])] * 2, "names a stream twice"),
        ([StreamSeek(stream=STREAM, lanes=[PlannedLane(lane="a", position=1)] * 2)], "names a lane"),
    ],
)
def test_a_plan_that_fits_no_stream_is_refused_as_a_whole(store: Store, owner: Holder, streams: list[StreamSeek], text: str) -> None:
    good = StreamSeek(stream=STREAM, lanes=[PlannedLane(lane="a", position=1)])
    whole = streams if STREAM in {one.stream for one in streams} else [good, *streams]
    with pytest.raises(ApiRefused, match=text):
        store.stream_seeks.plan(PlanSeek(plan="0" * 16, target="1", streams=whole), "Ada")
    assert seeks(store) == []
