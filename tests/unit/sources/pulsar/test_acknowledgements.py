from __future__ import annotations

from typing import Any, cast

import pytest

from headrace.errors import StreamEnded, StreamError, UpstreamFenced
from headrace.sources.pulsar import acknowledgements
from headrace.sources.pulsar.acknowledgements import Acknowledgements
from headrace.sources.pulsar.admin import AdminApi
from headrace.sources.pulsar.lane import Delivered, Lane, MessageId


class Broker:
    """A broker with one consumer, which receives an acknowledgement when it is looked at for the `delay`-th time."""

    def __init__(self, delay: int = 1, name: str = "me") -> None:
        self.name = name
        self.delay = delay
        self.acknowledged: list[str] = []
        self.time_ms = 0
        self.waits = 0
        self.error: StreamError | None = None

    async def acknowledge_cumulative(self, message_id: str) -> None:
        self.acknowledged.append(message_id)
        self.waits = self.delay

    async def find_subscription(self, topic: str, name: str) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        if self.waits == 1:
            self.time_ms += 1
        self.waits -= 1
        consumer = {"consumerName": self.name, "connectedSince": "x", "lastAckedTimestamp": self.time_ms}
        return {"consumers": [consumer], "totalMsgExpired": 0}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgements, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(acknowledgements, "SPACING_SECONDS", 0.0)


def acks(broker: Broker) -> Acknowledgements:
    return Acknowledgements(cast(AdminApi, broker), "s", "me")


def message(lane: Lane, entry: int) -> Delivered:
    return Delivered(lane, MessageId(1, entry, -1), f"id {entry}")


async def test_an_acknowledgement_returns_once_the_broker_has_received_it() -> None:
    broker, lane = Broker(delay=5), Lane("t")
    await acks(broker).acknowledge(broker, message(lane, 3))
    assert broker.acknowledged == ["id 3"]
    assert (lane.confirmed, broker.waits) == (MessageId(1, 3, -1), 0)
    await acks(broker).acknowledge(broker, message(lane, 2))
    assert broker.acknowledged == ["id 3"]


async def test_an_acknowledgement_that_does_not_arrive_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgements, "CONFIRM_SECONDS", 0.0)
    broker, lane = Broker(delay=10**6), Lane("t")
    with pytest.raises(StreamEnded, match="the broker has not received it"):
        await acks(broker).acknowledge(broker, message(lane, 3))
    assert lane.waits


async def test_a_repeated_acknowledgement_waits_for_the_first() -> None:
    broker, lane = Broker(delay=2), Lane("t")
    broker.error = StreamError("away")
    with pytest.raises(StreamError, match="away"):
        await acks(broker).acknowledge(broker, message(lane, 3))
    broker.error = None
    await acks(broker).acknowledge(broker, message(lane, 3))
    await acks(broker).acknowledge(broker, message(lane, 4))
    assert broker.acknowledged == ["id 3", "id 4"]
    assert lane.confirmed == MessageId(1, 4, -1)


async def test_another_consumer_fences_this_one() -> None:
    broker, lane = Broker(name="other"), Lane("t")
    with pytest.raises(UpstreamFenced, match="Another reader has taken over subscription 's' of t"):
        await acks(broker).look(lane)
