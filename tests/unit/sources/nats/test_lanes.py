"""A lane: what is delivered once, what is acknowledged, and what is missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import StreamError, UpstreamFenced
from headrace.sources.nats.lanes import UNKNOWN, Answers, Delivered, Lane, Origin, parse_origin

ACKED, FAILED = AdvanceOutcome(1, 0), AdvanceOutcome(0, 1)


def lane_of(*, floor: int = 0, waiting: int = 0, acks_each: bool = False) -> Lane:
    lane = Lane("a@1", "a", "shop-a", acks_each=acks_each, covers_stream=True)
    lane.begin("now", floor=floor, seen=floor, waiting=waiting)
    return lane


def origin(sequence: int, number: int, waiting: int = 0) -> Origin:
    return Origin(1, sequence, number, 0, waiting)


def items(lane: Lane, sequences: list[int], failed: list[int] | None = None) -> list[AdvanceItem]:
    return [AdvanceItem(Delivered(lane, one, f"r{one}"), FAILED if one in (failed or []) else ACKED) for one in sequences]


def test_a_position_is_delivered_once() -> None:
    lane = lane_of(floor=4)
    assert lane.receive(origin(5, 1))
    assert not lane.receive(origin(5, 2))
    assert not lane.receive(origin(3, 3))
    assert lane.receive(origin(9, 4))
    assert (lane.delivered, lane.consumer_sequence) == (9, 4)


def test_a_missing_delivery_went_to_another_program() -> None:
    lane = lane_of()
    lane.receive(origin(1, 1))
    with pytest.raises(StreamError, match="Deliveries 2 to 4 of consumer shop-a went to another program") as raised:
        lane.receive(origin(5, 5))
    assert not isinstance(raised.value, UpstreamFenced)
    assert lane.delivered == 1


def test_deliveries_that_are_numbered_from_the_start_again_are_those_of_another_reader() -> None:
    lane = lane_of()
    lane.receive(origin(1, 1))
    lane.receive(origin(2, 2))
    with pytest.raises(UpstreamFenced, match="Another reader has taken over"):
        lane.receive(origin(3, 1))


def test_an_acknowledgement_includes_all_before_it_but_for_a_work_queue() -> None:
    assert lane_of().answer(items(lane_of(), [1, 2, 5])) == Answers(5, ["r5"])
    assert lane_of(acks_each=True).answer(items(lane_of(), [1, 2, 5])) == Answers(5, ["r1", "r2", "r5"])


def test_nothing_from_a_failed_message_on_is_acknowledged() -> None:
    lane = lane_of()
    assert lane.answer(items(lane, [1, 2, 3, 4], failed=[3])) == Answers(2, ["r2"])
    assert lane.answer(items(lane, [5, 6])) is None
    assert lane.floor == 3


def test_an_answer_that_is_acknowledged_is_not_acknowledged_again() -> None:
    lane = lane_of()
    for number in range(1, 4):
        lane.receive(origin(number, number))
    answers = lane.answer(items(lane, [1, 2]))
    assert answers is not None
    lane.confirm(answers)
    assert (lane.committed, lane.oldest) == (2, 3)
    assert lane.answer(items(lane, [1, 2], failed=[1])) is None
    assert lane.floor is None
    assert lane.answer(items(lane, [1, 2, 3])) == Answers(3, ["r3"])


def test_the_end_counts_what_waits() -> None:
    lane = lane_of(floor=10, waiting=5)
    assert lane.end == 15
    lane.receive(origin(20, 1, waiting=4))
    assert lane.end == 24
    lane.receive(origin(40, 2, waiting=0))
    assert lane.end == 40


def test_removed_messages_are_missing_once() -> None:
    lane = lane_of(floor=3)
    assert lane.missing_before(4) is None
    assert lane.missing_before(10) == (4, 9)
    assert lane.missing_before(10) is None
    lane.begin("now", floor=0, seen=UNKNOWN, waiting=0)
    assert lane.missing_before(10) is None
    lane.receive(origin(10, 1))
    assert lane.missing_before(13) == (11, 12)


@given(st.integers(1, 2**62), st.integers(1, 2**62), st.integers(0, 2**62), st.sampled_from(["", "domain.hash."]))
def test_the_subject_of_an_acknowledgement_tells_where_a_message_is_from(sequence: int, number: int, waiting: int, domain: str) -> None:
    tail = ".random" if domain else ""
    reply = f"$JS.ACK.{domain}ORDERS.shop.2.{sequence}.{number}.1795449212905259613.{waiting}{tail}"
    assert parse_origin(reply) == Origin(2, sequence, number, 1795449212905259613, waiting)


@pytest.mark.parametrize("reply", ["", "_INBOX.a.1", "$JS.ACK.S.C.1.2.3.4", "$JS.ACK.S.C.1.x.3.4.5", "$JS.FC.S.C.1.2.3.4.5"])
def test_other_subjects_are_none(reply: str) -> None:
    assert parse_origin(reply) is None
