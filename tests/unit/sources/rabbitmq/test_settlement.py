"""Delivery tags: the server is a model that closes the channel when a tag is settled twice."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.rabbitmq.settlement import Answer, Settle, Settlement

DONE, REJECTED, FAILED = Answer.DONE, Answer.REJECTED, Answer.FAILED


class Channel:
    """The unsettled tags of a channel, as the server keeps them."""

    def __init__(self, tags: int) -> None:
        self.unsettled = set(range(1, tags + 1))
        self.acked: set[int] = set()
        self.dead_lettered: set[int] = set()
        self.requeued: set[int] = set()

    def receive(self, frames: Sequence[Settle]) -> None:
        for frame in frames:
            tags = {tag for tag in self.unsettled if tag <= frame.tag} if frame.multiple else {frame.tag}
            assert tags, "the server closes the channel"
            assert tags <= self.unsettled, "the server closes the channel"
            self.unsettled -= tags
            group = self.acked if frame.ack else self.requeued if frame.requeue else self.dead_lettered
            group |= tags


@given(st.lists(st.sampled_from(Answer), max_size=40), st.lists(st.integers(1, 9), min_size=1), st.integers(0, 40))
def test_each_answered_message_is_settled_once_and_no_other(answers: list[Answer], sizes: list[int], requeue_at: int) -> None:
    channel, settlement = Channel(len(answers) + 3), Settlement()
    numbered = list(enumerate(answers, start=1))
    start, batch = 0, 0
    while start < len(numbered):
        part = numbered[start : start + sizes[batch % len(sizes)]]
        channel.receive(settlement.answer(part, now=float(part[0][0])))
        assert settlement.answer(part, now=0.0) == [], "a repeated advance changes nothing"
        if part[0][0] <= requeue_at:
            channel.receive(settlement.requeue(before=float(requeue_at)))
        start, batch = start + len(part), batch + 1
    channel.receive(settlement.requeue(before=1_000.0))
    expected = {answer: {tag for tag, one in numbered if one is answer} for answer in Answer}
    assert channel.acked == expected[DONE]
    assert channel.dead_lettered == expected[REJECTED]
    assert channel.requeued == expected[FAILED]
    assert channel.unsettled == {len(answers) + 1, len(answers) + 2, len(answers) + 3}


def test_answered_messages_are_acknowledged_with_one_frame() -> None:
    assert Settlement().answer([(tag, DONE) for tag in range(1, 701)], now=0.0) == [Settle(700, multiple=True)]


def test_messages_after_a_failed_one_are_acknowledged_one_by_one_until_it_is_requeued() -> None:
    settlement = Settlement()
    assert settlement.answer([(1, DONE), (2, FAILED), (3, DONE)], now=5.0) == [Settle(1, multiple=True), Settle(3)]
    assert not settlement.is_due(before=4.0)
    assert settlement.is_due(before=5.0)
    assert settlement.requeue(before=5.0) == [Settle(2, ack=False, requeue=True)]
    assert settlement.answer([(4, DONE), (5, DONE)], now=6.0) == [Settle(5, multiple=True)]
