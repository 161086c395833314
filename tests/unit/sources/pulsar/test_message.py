from __future__ import annotations

from datetime import UTC, datetime

from headrace.sources.declared_decoder import decoder_of
from headrace.sources.pulsar.lane import MessageId
from headrace.sources.pulsar.message import raw_event
from headrace.triggers.raw_event import Message


class Sent:
    """A message as the client delivers it."""

    def __init__(self, data: bytes | None = b"{}", **fields: object) -> None:
        self._data = data
        self._fields = fields

    def has_null_value(self) -> bool:
        return self._data is None

    def data(self) -> bytes:
        return self._data or b""

    def properties(self) -> dict[str, str]:
        return self._fields.get("properties", {})  # type: ignore[return-value]

    def partition_key(self) -> str:
        return str(self._fields.get("key", ""))

    def ordering_key(self) -> str:
        return str(self._fields.get("ordering_key", ""))

    def publish_timestamp(self) -> int:
        return 1_763_946_123_000

    def event_timestamp(self) -> int:
        return int(str(self._fields.get("event", 0)))


ID = MessageId(7, 3, -1)


def event(sent: Sent, decode: str = "json", id: MessageId = ID) -> Message:
    return raw_event(sent, "t", id, decoder_of(decode), decode)


def test_a_message_has_its_metadata() -> None:
    raw = event(Sent(b'{"n": 1}', key="ada", ordering_key="o", event=5, properties={"traceparent": "00-1"}))
    assert (raw.value, raw.key, raw.lane, raw.position) == ({"n": 1}, "ada", "t", None)
    assert raw.headers == {"traceparent": "00-1", "event-time": "5", "ordering-key": "o"}
    assert raw.timestamp == datetime.fromtimestamp(1_763_946_123, UTC)
    assert raw.delivery is None


def test_the_id_has_the_id_and_the_publish_time() -> None:
    assert event(Sent(), id=MessageId(7, 3, 2)).id == "7:3:2:1763946123000"


def test_a_message_without_a_value_is_null_and_one_without_a_key_has_none() -> None:
    assert (event(Sent(None)).value, event(Sent(None)).key) == (None, None)
    assert event(Sent(b""), "text").value == {"text": ""}


def test_attributes_of_a_cloud_event_in_properties_are_read() -> None:
    properties = {"ce-id": "1", "ce-source": "/s", "ce-specversion": "1.0", "ce-type": "t"}
    raw = event(Sent(b"{}", properties=properties), "cloudevents")
    assert raw.value["id"] == "1"
    assert event(Sent(b"{}", properties=properties)).headers["ce-id"] == "1"


def test_a_value_in_another_format_is_malformed() -> None:
    assert event(Sent(b"\xff"), "text").malformed
