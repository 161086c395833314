"""The trace of a raw event is stored with its event."""

from __future__ import annotations

import msgspec
import pytest

from headrace.core.matching.envelope import Envelope
from headrace.streams.sink import Matched
from headrace.triggerer.outbox.outbox import Outbox, OutboxItem
from headrace.triggerer.outbox.sink import OutboxSink
from headrace.triggers.raw_event import RawEvent
from headrace.wire.custody.events import EventItem

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Kept(Outbox):
    """An outbox that shows what was put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.put_in: list[OutboxItem] = []

    def put(self, pending: OutboxItem) -> None:
        self.put_in.append(pending)


@pytest.mark.parametrize(("value", "trace"), [({"traceparent": GIVEN}, GIVEN), ({"traceparent": "forged\n"}, None), ({}, None)])
async def test_a_valid_traceparent_is_stored_with_the_event(value: dict[str, str], trace: str | None) -> None:
    outbox = Kept()
    sealer = OutboxSink(outbox, lambda seq: None, lambda key, ids, error: None, lambda key, who, error: None)
    raw = RawEvent(msgspec.json.encode(value), "lane", 3)
    sealer.matched(Matched(1, "stream", "lane", 3, raw, raw.value, Envelope(source="s", type="t"), (7,)))
    (pending,) = outbox.put_in
    assert isinstance(pending.item, EventItem)
    assert pending.item.trace == trace
