from __future__ import annotations

from collections.abc import Sequence

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.sources.leases import leases as module
from headrace.sources.leases.leases import Lease, Leases, Part

ACKED = AdvanceOutcome(1, 0)
FAILED = AdvanceOutcome(0, 1)


def received(leases: Leases, id: str, group: str | None = None, parts: int = 1, now: float = 0.0) -> Lease:
    lease = leases.receive(id, f"{id}@{now:g}", group, group or "q", parts, now)
    assert lease is not None
    return lease


def items(parts: Sequence[tuple[Lease, int]], outcome: AdvanceOutcome = ACKED) -> list[AdvanceItem]:
    return [AdvanceItem(Part(lease, number), outcome) for lease, number in parts]


def test_a_message_is_deleted_when_all_its_records_are_answered() -> None:
    leases = Leases(30, 30, is_ordered=False)
    lease = received(leases, "m", parts=3)
    assert leases.answer(items([(lease, 0), (lease, 2)])) == []
    assert leases.answer(items([(lease, 1)])) == [lease]


def test_a_repeated_answer_names_the_message_until_it_is_deleted() -> None:
    leases = Leases(30, 30, is_ordered=False)
    lease = received(leases, "m")
    assert leases.answer(items([(lease, 0)])) == [lease]
    assert leases.answer(items([(lease, 0)])) == [lease]
    leases.drop(lease)
    assert leases.answer(items([(lease, 0)])) == []
    assert len(leases) == 0


def test_a_message_with_one_failed_record_is_not_deleted() -> None:
    leases = Leases(30, 30, is_ordered=False)
    lease = received(leases, "m", parts=2)
    assert leases.answer([*items([(lease, 0)]), *items([(lease, 1)], FAILED)]) == []
    assert leases.answer(items([(lease, 0), (lease, 1)])) == []
    assert leases.due(20.0) == []


def test_a_held_message_that_comes_again_keeps_its_lease_and_gets_the_new_receipt() -> None:
    leases = Leases(30, 30, is_ordered=False)
    lease = received(leases, "m")
    lease.is_lost = True
    assert leases.receive("m", "new", None, "q", 1, 40.0) is None
    assert (lease.receipt, lease.until, lease.is_lost) == ("new", 70.0, False)


def test_a_failed_message_of_a_standard_queue_leaves_the_others() -> None:
    leases = Leases(30, 30, is_ordered=False)
    first, second, third = (received(leases, id) for id in "abc")
    assert leases.answer([*items([(first, 0)]), *items([(second, 0)], FAILED), *items([(third, 0)])]) == [first, third]


def test_a_failed_message_of_a_fifo_queue_keeps_all_later_ones_of_its_group() -> None:
    leases = Leases(30, 30, is_ordered=True)
    first, failed, later, other = (received(leases, id, group) for id, group in (("a", "x"), ("b", "x"), ("c", "x"), ("d", "y")))
    assert leases.answer([*items([(first, 0)]), *items([(failed, 0)], FAILED), *items([(later, 0)])]) == [first]
    assert leases.answer(items([(other, 0)])) == [other]
    assert leases.answer(items([(later, 0)])) == []
    again = received(leases, "b", "x", now=31.0)
    assert leases.answer(items([(again, 0)])) == [again]


def test_a_failed_message_without_a_group_leaves_the_others_of_an_ordered_queue() -> None:
    leases = Leases(30, 30, is_ordered=True)
    failed, later = received(leases, "a"), received(leases, "b")
    first, last = received(leases, "c", "x"), received(leases, "d", "x")
    assert leases.answer([*items([(failed, 0)], FAILED), *items([(later, 0), (first, 0), (last, 0)])]) == [later, first, last]
    assert failed not in list(leases)


def test_leases_are_due_at_half_time_unless_they_are_lost() -> None:
    leases = Leases(30, 30, is_ordered=False)
    early, late = received(leases, "a"), received(leases, "b", now=10.0)
    assert leases.due(14.9) == []
    assert leases.due(15.0) == [early]
    leases.extend(early, 15.0)
    assert leases.due(25.0) == [late]
    late.is_lost = True
    assert leases.due(29.0) == []


def test_an_answered_message_that_was_not_deleted_is_only_to_be_deleted_when_it_comes_again() -> None:
    leases = Leases(30, 30, is_ordered=False)
    lease = received(leases, "m", parts=2)
    leases.finish(lease)
    assert received(leases, "m", parts=2, now=31.0).open_parts == set()
    leases.drop(next(iter(leases)))
    assert received(leases, "m", parts=2, now=62.0).open_parts == {0, 1}


def test_the_ids_of_answered_messages_are_bounded() -> None:
    leases = Leases(30, 30, is_ordered=False)
    for number in range(module.MAX_FINISHED_IDS + 1):
        leases.finish(received(leases, str(number)))
    assert received(leases, "0").open_parts == {0}
    assert received(leases, "1").open_parts == set()


def test_the_first_message_of_each_group_is_released_last() -> None:
    leases = Leases(30, 30, is_ordered=True)
    held = [received(leases, f"{group}{number}", group) for number in range(3) for group in "xy"]
    leases.answer(items([(held[0], 0)], FAILED))
    later, first = leases.to_release(1.0)
    assert [lease.id for lease in first] == ["x0", "y0"]
    assert [lease.id for lease in later] == ["y2", "x2", "y1", "x1"]


def test_leases_that_have_ended_are_not_released() -> None:
    leases = Leases(30, 30, is_ordered=False)
    received(leases, "a")
    lost, failed = received(leases, "b", now=10.0), received(leases, "c", now=10.0)
    lost.is_lost = True
    leases.answer(items([(failed, 0)], FAILED))
    assert leases.to_release(35.0) == [[failed]]
    leases.due(41.0)
    assert leases.to_release(20.0) == [[next(lease for lease in leases if lease.id == "a")]]
