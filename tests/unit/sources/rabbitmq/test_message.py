"""Messages of RabbitMQ as raw events."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import MalformedEvent
from headrace.sources.decoding import DECODERS
from headrace.sources.rabbitmq.message import PROPERTIES, is_from_stream, raw_event
from headrace.triggers.raw_event import Message


def received(body: bytes = b"1", *, redelivered: bool = False, headers: dict[str, Any] | None = None, **properties: Any) -> Any:
    """Return a message in the shape of the client's."""
    named = dict.fromkeys([*PROPERTIES, "message_id", "timestamp"]) | properties
    return SimpleNamespace(
        header=SimpleNamespace(properties=SimpleNamespace(headers=headers, **named)),
        delivery=SimpleNamespace(routing_key="eu.paid", exchange="shop", redelivered=redelivered),
        body=body,
    )


def read(message: Any, *, decode: Any = "json", is_only_queue: bool = True) -> Message:
    return raw_event(message, "orders", DECODERS[decode], is_only_queue=is_only_queue)


def test_metadata_are_those_of_the_sender_and_the_delivery() -> None:
    time = datetime(2026, 11, 23, 12, tzinfo=UTC)
    raw = read(received(b'{"n":1}', message_id="m1", timestamp=time, content_type="application/json", headers={"tenant": "eu"}))
    assert (raw.lane, raw.position, raw.id, raw.key, raw.delivery, raw.timestamp) == ("orders", None, "m1", "eu.paid", 1, time)
    assert raw.headers == {"tenant": "eu", "content-type": "application/json", "exchange": "shop", "redelivered": "false"}


def test_each_type_of_header_becomes_text() -> None:
    values = {"t": "é", "b": b"\xff", "i": 7, "f": 1.5, "y": True, "n": None, "l": [1, b"x"], "d": {"a": datetime(2026, 1, 1, tzinfo=UTC)}}
    raw = read(received(headers=values))
    shown = {name: raw.headers.get(name) for name in values}
    assert shown == {
        "t": "é",
        "b": "\ufffd",
        "i": "7",
        "f": "1.5",
        "y": "true",
        "n": None,
        "l": '[1, "x"]',
        "d": '{"a": "2026-01-01T00:00:00+00:00"}',
    }


def test_a_sender_cannot_replace_what_the_server_says() -> None:
    assert read(received(headers={"redelivered": "no", "exchange": "x"}, redelivered=True)).headers == {
        "redelivered": "true",
        "exchange": "shop",
    }


@pytest.mark.parametrize(
    ("redelivered", "headers", "deliveries"), [(False, None, 1), (True, None, None), (True, {"x-delivery-count": 3}, 4)]
)
def test_deliveries_are_counted_where_the_queue_counts_them(
    redelivered: bool, headers: dict[str, Any] | None, deliveries: int | None
) -> None:
    assert read(received(redelivered=redelivered, headers=headers)).delivery == deliveries


def test_the_id_names_the_queue_if_there_are_several() -> None:
    """One message that an exchange copies to two queues has the same id in both."""
    assert read(received(message_id="m/1"), is_only_queue=False).id == "orders/m/1"
    assert read(received(), is_only_queue=False).id is None
    assert read(received(message_id="")).id is None


def test_a_message_without_a_body_is_null() -> None:
    assert read(received(b"")).value is None


def test_a_body_in_another_format_is_malformed() -> None:
    raw = read(received(b"\xff", message_id="m"), decode="text")
    assert (raw.data, raw.id) == (b"\xff", "m")
    with pytest.raises(MalformedEvent, match="Not UTF-8"):
        _ = raw.value


def test_attributes_of_a_cloudevent_are_read_from_headers_of_amqp() -> None:
    named = {"id": "1", "source": "/shop", "specversion": "1.0", "type": "paid"}
    headers = {f"cloudEvents:{name}": value for name, value in named.items()}
    raw = read(received(b'{"n":1}', headers=headers, content_type="application/json", message_id="m"), decode="cloudevents")
    assert raw.value == named | {"datacontenttype": "application/json", "data": {"n": 1}}
    assert raw.id == "%2Fshop/1"


def test_a_message_of_a_stream_is_recognised() -> None:
    assert is_from_stream(received(headers={"x-stream-offset": 0}))
    assert not is_from_stream(received())
