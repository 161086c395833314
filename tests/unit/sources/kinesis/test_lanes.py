from __future__ import annotations

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.sources.kinesis.client import Shard
from headrace.sources.kinesis.lanes import CLOCK_MARGIN_MS, Checkpoint, Delivered, Lane, first_known_ms, ready_shards

ACKED, FAILED = AdvanceOutcome(1, 0), AdvanceOutcome(0, 1)
MAX_HASH = 2**128 - 1


def shard(id: str, *parents: str) -> Shard:
    return Shard(id, parents, 0, MAX_HASH)


def lane(stored: Checkpoint | None = None) -> Lane:
    return Lane("a@1", shard("a"), stored or Checkpoint())


def read(one: Lane, *sequences: int) -> list[Delivered]:
    return [one.deliver(str(sequence), 1, sequence) for sequence in sequences]


def acked(*payloads: Delivered) -> list[AdvanceItem]:
    return [AdvanceItem(payload, ACKED) for payload in payloads]


def test_positions_count_on_from_the_checkpoint() -> None:
    one = lane(Checkpoint(7, "100", 1, 5, 5))
    assert (one.skip("99"), one.skip("100"), one.skip("101")) == (None, 1, 0)
    assert [payload.position for payload in read(one, 101, 102)] == [8, 9]
    assert one.skip("102") == 1
    assert (one.committed_position, one.end_position) == (7, None)


def test_sequence_numbers_are_compared_as_numbers() -> None:
    one = lane(Checkpoint(1, "9", 1))
    assert one.skip("10") == 0


def test_the_checkpoint_does_not_pass_a_failed_event() -> None:
    one = lane()
    items = read(one, 1, 2, 3, 4)
    stored = one.answer([*acked(items[0]), AdvanceItem(items[1], FAILED), *acked(items[2])])
    assert stored == Checkpoint(1, "1", 1, 1, 1)
    one.confirm(stored)
    assert one.answer(acked(items[3])) is None
    assert one.is_answered
    assert not one.is_drained
    assert one.refreshed() is None


def test_a_repeated_answer_is_not_stored_again() -> None:
    one = lane()
    items = read(one, 1, 2)
    stored = one.answer(acked(*items))
    assert stored is not None
    one.confirm(stored)
    assert one.answer(acked(items[0])) is None


def test_a_closed_shard_is_finished_with_its_last_event() -> None:
    one = lane()
    items = read(one, 1, 2)
    one.is_ended = True
    one.reached(50, at_end=True)
    first, last = one.answer(acked(items[0])), one.answer(acked(items[1]))
    assert first is not None
    assert last is not None
    assert (first.is_finished, first.known_ms) == (False, 1)
    assert (last.is_finished, last.known_ms) == (True, 50)


def test_records_may_be_lost_if_the_horizon_has_passed_what_is_known() -> None:
    stored = Checkpoint(known_ms=1_000_000)
    assert stored.may_be_lost(1_000_000)
    assert stored.may_be_lost(1_000_001 - CLOCK_MARGIN_MS)
    assert not stored.may_be_lost(1_000_000 - CLOCK_MARGIN_MS)


def test_a_shard_waits_for_each_parent_that_the_stream_still_has() -> None:
    shards = {one.id: one for one in (shard("b"), shard("c"), shard("d", "b", "c"), shard("e", "gone"))}
    assert [one.id for one in ready_shards(shards, (), ())] == ["b", "c", "e"]
    assert [one.id for one in ready_shards(shards, {"b"}, {"c", "e"})] == []
    assert [one.id for one in ready_shards(shards, {"b", "c"}, {"e"})] == ["d"]
    assert ready_shards(shards, {"b", "c", "d", "e"}, ()) == []


def test_a_parent_that_is_read_and_no_longer_listed_holds_its_children() -> None:
    shards = {"c": shard("c", "p")}
    assert ready_shards(shards, (), {"p"}) == []
    assert [one.id for one in ready_shards(shards, {"p"}, {"p"})] == ["c"]


def test_a_new_shard_is_known_from_the_time_of_its_nearest_stored_ancestors_on() -> None:
    shards = {one.id: one for one in (shard("a"), shard("b"), shard("c", "a", "b"), shard("d", "c"), shard("e", "gone"))}
    assert first_known_ms(shards["d"], shards, {}, 100) == 100
    assert first_known_ms(shards["d"], shards, {"a": Checkpoint(known_ms=20)}, 100) == 20
    assert first_known_ms(shards["d"], shards, {"a": Checkpoint(known_ms=20), "c": Checkpoint(known_ms=30)}, 100) == 30
    assert first_known_ms(shards["c"], shards, {"a": Checkpoint(known_ms=200), "b": Checkpoint(known_ms=30)}, 100) == 30
    assert first_known_ms(shards["e"], shards, {"gone": Checkpoint(known_ms=30)}, 100) == 30
    assert first_known_ms(shards["e"], shards, {}, 100) == 100
