"""A malformed message that a backlog returns is decoded again: it is then as its first delivery would have been."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import MalformedEvent
from headrace.sources.declared_decoder import Decoding
from headrace.sources.decoding import DECODERS, Decoded, decode_again, decoded_message
from headrace.sources.files.line_splitter import LONG_LINE
from headrace.sources.nats.message import decode_message_again
from headrace.sources.objects.upstream import ObjectStore
from headrace.sources.redis.message import EntryFormat, decode_entry_again
from headrace.sources.sqs.message import decode_record_again, raw_events
from headrace.streams.subscribers.raw_text import raw_event_from, raw_event_text
from headrace.triggers.raw_event import Message, RawHeaders

CLOUD_EVENT: dict[str, Any] = {"id": "7", "source": "/shop", "specversion": "1.0", "type": "order", "data": {"n": 1}}


def restored(message: Message) -> Message:
    """Return the message as a backlog returns it."""
    other = raw_event_from(raw_event_text(message), message.lane, message.position)
    assert isinstance(other, Message)
    return other


def refuse(value: bytes | None, headers: RawHeaders) -> Decoded:
    raise MalformedEvent("There is no schema yet.")


def as_values(message: Message) -> tuple[Any, ...]:
    return (message.data, message.lane, message.position, message.metadata)


@pytest.mark.parametrize("value", [b"\x00\xff", b"", b'{"a": 1}', b"null"])
def test_the_decoder_gets_the_bytes_and_headers_of_the_first_delivery(value: bytes) -> None:
    seen: list[tuple[bytes | None, RawHeaders]] = []

    def decode(value: bytes | None, headers: RawHeaders) -> Decoded:
        seen.append((value, headers))
        return Decoded(b'{"n": 1}')

    fields: dict[str, Any] = {"key": "k", "headers": (("a", b"\xff"), ("b", None)), "timestamp_ms": 5, "id": "m"}
    first = decoded_message(decode, value, "lane", 3, **fields)
    again = decode_again(decode, restored(decoded_message(refuse, value, "lane", 3, **fields)))
    assert seen[1] == (value, (("a", b"\xff"), ("b", None)))
    assert as_values(again) == as_values(first)
    assert again.value == {"n": 1}


def test_the_id_is_that_of_the_format() -> None:
    value = json.dumps(CLOUD_EVENT).encode()
    broken = restored(decoded_message(refuse, value, "lane", 3, id="of the broker"))
    assert broken.id == "of the broker"
    assert decode_again(DECODERS["cloudevents"], broken).id == decoded_message(DECODERS["cloudevents"], value, "lane", 3).id


def test_a_value_that_still_does_not_decode_has_the_new_reason() -> None:
    broken = restored(decoded_message(refuse, b"\xff", "lane", 3))
    again = decode_again(DECODERS["text"], broken)
    assert again.data == b"\xff"
    with pytest.raises(MalformedEvent, match="Not UTF-8"):
        assert again.value


def test_headers_of_nats_are_named_as_the_present_format_names_them() -> None:
    headers = [(f"ce-{name}", str(CLOUD_EVENT[name]).encode()) for name in ("id", "source", "specversion", "type")]
    broken = restored(decoded_message(refuse, b'{"n": 1}', "lane", 3, headers=headers))
    assert decode_message_again(broken, "cloudevents").value == {**CLOUD_EVENT, "data": {"n": 1}}
    assert decode_message_again(broken, "text").headers["ce-id"] == "7"


def redis(payload: str | None, decode: Decoding = "json") -> EntryFormat:
    return EntryFormat(payload, None, decode)


def test_an_entry_of_redis_is_decoded_by_its_present_field() -> None:
    broken = restored(decoded_message(refuse, b"\xff", "lane", 3, headers=[("other", b'{"n": 2}')]))
    assert decode_entry_again(redis("data", "base64"), broken).value == {"base64": "/w=="}
    moved = decode_entry_again(redis("other"), broken)
    assert (moved.value, moved.headers) == ({"n": 2}, {})
    assert decode_entry_again(redis(None), broken).malformed == broken.malformed
    without = restored(decoded_message(refuse, None, "lane", 3, headers=[("a", b"1")]))
    without.malformed = "The entry has no field 'data'."
    assert decode_entry_again(redis("data"), without).malformed == without.malformed
    assert decode_entry_again(redis(None), without).value == {"a": "1"}


def sqs(body: str, decoding: tuple[str, ...]) -> Message:
    [message] = raw_events({"Body": body, "MessageId": "m-1"}, "queue", decoding)
    return message


NOTIFICATION = {"Type": "Notification", "MessageId": "n", "TopicArn": "arn"}


@pytest.mark.parametrize(
    ("content", "before", "now"),
    [
        ("a b", ("sns", "debezium"), ("sns", "text")),
        (json.dumps(CLOUD_EVENT | {"op": 1}), ("sns", "sns"), ("sns", "cloudevents")),
        (json.dumps({"Records": [{"s3": {"bucket": {"name": "b"}, "object": {"key": "a+b"}}}]}), ("sns", "debezium"), ("sns", "s3")),
    ],
)
def test_a_record_of_sqs_is_decoded_from_the_step_that_failed(content: str, before: tuple[str, ...], now: tuple[str, ...]) -> None:
    body = json.dumps({**NOTIFICATION, "Message": content})
    broken = sqs(body, before)
    assert broken.malformed is not None
    again, first = decode_record_again(restored(broken), now), sqs(body, now)
    assert (again.value, again.id, again.key, again.headers) == (first.value, first.id, first.key, first.headers)


def test_a_body_of_sqs_with_an_undeclared_envelope_is_decoded_by_all_steps() -> None:
    body = json.dumps({**NOTIFICATION, "Message": '{"n": 1}'})
    again = decode_record_again(restored(sqs(body, ("debezium",))), ("sns",))
    assert (again.value, again.id) == ({"n": 1}, "m-1")


def test_a_body_of_sqs_with_several_records_stays_malformed() -> None:
    one = {"s3": {"bucket": {"name": "b"}, "object": {"key": "a"}}}
    again = decode_record_again(restored(sqs(json.dumps({"Records": [one, one]}), ("debezium",))), ("s3",))
    with pytest.raises(MalformedEvent, match="has 2 records"):
        assert again.value


async def test_a_line_that_was_cut_is_not_decoded() -> None:
    producer = ObjectStore("s3://landing/orders", read="lines", decode="text").producer()
    cut = Message(b"abc", "lane", 0, malformed=LONG_LINE)
    assert (await producer.decode_again(cut)).malformed == LONG_LINE
    assert (await producer.decode_again(Message(b"abc", "lane", 0, malformed="Not UTF-8"))).value == {"text": "abc"}
