from __future__ import annotations

from typing import Any

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.sources.pulsar.lane import Delivered, Lane, MessageId

ACKED, FAILED = AdvanceOutcome(1, 0), AdvanceOutcome(0, 1)


def delivered(lane: Lane, *ids: tuple[int, int, int]) -> list[Delivered]:
    assert all(lane.deliver(MessageId(*id)) for id in ids)
    return [Delivered(lane, MessageId(*id), f"id of {id}") for id in ids]


def items(messages: list[Delivered], failed: tuple[int, ...] = ()) -> list[AdvanceItem]:
    return [AdvanceItem(one, FAILED if number in failed else ACKED) for number, one in enumerate(messages)]


def consumer(since: str, acked_ms: int) -> dict[str, Any]:
    return {"connectedSince": since, "lastAckedTimestamp": acked_ms}


def test_a_message_that_comes_again_is_not_delivered() -> None:
    lane = Lane("t")
    delivered(lane, (1, 0, 0), (1, 0, 1), (1, 1, -1), (2, 0, -1))
    assert not lane.deliver(MessageId(1, 0, 1))
    assert not lane.deliver(MessageId(2, 0, -1))
    assert lane.deliver(MessageId(2, 1, -1))


def test_the_last_clean_message_is_the_one_to_acknowledge() -> None:
    lane = Lane("t")
    messages = delivered(lane, (1, 0, 0), (1, 0, 1), (1, 0, 2))
    assert lane.answer(items(messages)) == messages[-1]


def test_no_acknowledgement_passes_a_failed_message() -> None:
    lane = Lane("t")
    messages = delivered(lane, (1, 0, -1), (1, 1, -1), (1, 2, -1), (1, 3, -1))
    assert lane.answer(items(messages[:3], failed=(1,))) == messages[0]
    assert lane.answer(items(messages[3:])) is None
    assert lane.answer(items(messages[:3], failed=(1,))) == messages[0]


def test_confirmed_messages_need_no_acknowledgement() -> None:
    lane = Lane("t")
    messages = delivered(lane, (1, 0, -1), (1, 1, -1))
    lane.sent = messages[1].id
    assert [lane.waits, lane.observe(consumer("a", 5)), lane.waits] == [True, True, False]
    assert lane.answer(items(messages)) is None


def test_only_a_later_time_confirms() -> None:
    lane = Lane("t")
    first, second = delivered(lane, (1, 0, -1), (1, 1, -1))
    lane.sent = first.id
    assert not lane.observe(consumer("a", 0))
    assert lane.observe(consumer("a", 5))
    lane.sent = second.id
    assert not lane.observe(consumer("a", 5))
    assert lane.confirmed == first.id
    assert lane.observe(consumer("a", 6))
    assert lane.confirmed == second.id


def test_a_new_connection_confirms_only_what_arrives_on_it() -> None:
    lane = Lane("t")
    (first,) = delivered(lane, (1, 0, -1))
    assert not lane.observe(consumer("a", 0))
    lane.sent = first.id
    assert not lane.observe(consumer("b", 0))
    assert lane.observe(consumer("b", 3))
