"""A queue that is spilled at once reaches the sink in slices, so that the loop turns between them, and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from headrace.core.ledger import Ledger
from headrace.streams.delivery import DeliveryIds
from headrace.streams.matched import Spilled, StreamSink
from headrace.streams.policy import StreamPolicy
from headrace.streams.registered import SPILLS_AT_ONCE, Registered
from headrace.streams.trouble import Trouble

POLICY = StreamPolicy(
    max_subscriber_queue=10_000,
    max_outstanding=10_000,
    ack_timeout=60.0,
    overflow="spill",
    clock=lambda: 0.0,
    max_attempts=3,
    retry_wait=0.0,
    advance_backoff=(0.0, 0.0),
    advance_attempts=1,
    advance_timeout=1.0,
    close_timeout=1.0,
    max_advances=1,
)


class Spills:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.positions: list[int | None] = []

    def spilled(self, spilled: Spilled) -> None:
        self.positions.append(spilled.position)


class Scene:
    """A registered trigger that is live and has begun nothing."""

    def __init__(self, queued: int) -> None:
        self.ledger = Ledger(queue_limit=10_000, ack_timeout=60.0)
        self.sink = Spills()
        self.registered = Registered("s", self.ledger, cast(StreamSink, self.sink), DeliveryIds(), POLICY, lambda _: None)
        self.registered.add(1, Trouble())
        self.ledger.catch_up(self.registered.reader(1))
        self.ledger.go_live(self.registered.reader(1))
        for position in range(queued):
            self.publish(position)

    def publish(self, position: int) -> None:
        _, _, spill = self.ledger.publish({"n": position}, None, "lane", 0.0, position)
        if spill is not None:
            self.registered.hand_over(spill)

    def spill(self) -> None:
        self.registered.spill([self.registered.reader(1)], stop=False)


async def test_one_turn_of_the_loop_hands_over_one_slice_and_later_spills_wait_behind() -> None:
    queued = 3 * SPILLS_AT_ONCE + 5
    scene = Scene(queued)
    scene.spill()
    counts = [len(scene.sink.positions)]
    for later in range(10):
        scene.publish(queued + later)
        await asyncio.sleep(0)
        counts.append(len(scene.sink.positions))
    assert counts[:4] == [SPILLS_AT_ONCE, 2 * SPILLS_AT_ONCE, 3 * SPILLS_AT_ONCE, queued + 3]
    assert scene.sink.positions == [*range(queued + 10)]


@pytest.mark.parametrize("ends", [lambda registered: registered.drop(1), lambda registered: registered.close()])
async def test_where_a_trigger_or_the_stream_goes_the_rest_is_handed_over_before(ends: Callable[[Registered], None]) -> None:
    scene = Scene(3 * SPILLS_AT_ONCE)
    scene.spill()
    ends(scene.registered)
    assert scene.sink.positions == [*range(3 * SPILLS_AT_ONCE)]
    await asyncio.sleep(0)
    assert len(scene.sink.positions) == 3 * SPILLS_AT_ONCE
