from __future__ import annotations

import pickle
from typing import Any

import pytest

from headrace.errors import MalformedEvent
from headrace.sources.sqs.message import group_of, raw_events

MESSAGE: dict[str, Any] = {
    "MessageId": "m-1",
    "ReceiptHandle": "r",
    "Body": '{"n":1}',
    "Attributes": {
        "ApproximateReceiveCount": "3",
        "SentTimestamp": "1700000000123",
        "MessageGroupId": "g",
        "SequenceNumber": "15421642055578812416",
    },
    "MessageAttributes": {
        "traceparent": {"DataType": "String", "StringValue": "00-1"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\xff"},
    },
}


def test_a_message_has_its_id_group_count_time_and_attributes() -> None:
    [raw] = raw_events(MESSAGE, "g", ["json"])
    assert (raw.value, raw.lane, raw.position, raw.id, raw.key, raw.delivery, raw.timestamp_ms) == (
        {"n": 1},
        "g",
        None,
        "m-1",
        "g",
        3,
        1_700_000_000_123,
    )
    assert raw.headers == {"SequenceNumber": "15421642055578812416", "traceparent": "00-1", "raw": "\ufffd"}
    assert group_of(MESSAGE) == "g"


def test_a_message_may_have_nothing_but_id_and_body() -> None:
    [raw] = raw_events({"MessageId": "m-1", "Body": "1"}, "q", ["json"])
    assert (raw.value, raw.key, raw.delivery, raw.timestamp_ms, raw.headers) == (1, None, None, None, {})


def test_records_of_one_message_have_ids_of_their_own() -> None:
    record = '{"s3":{"bucket":{"name":"b"},"object":{"key":"k"}}}'
    for count in (1, 2):
        body = '{"Records":[' + ",".join([record] * count) + "]}"
        raws = raw_events(MESSAGE | {"Body": body}, "q", ["s3"])
        assert [raw.id for raw in raws] == [f"m-1/{number}" for number in range(count)]
        assert {raw.key for raw in raws} == {"b/k"}


def test_another_envelope_has_no_value_also_in_another_process() -> None:
    [raw] = raw_events(MESSAGE, "q", ["sns"])
    for one in (raw, pickle.loads(pickle.dumps(raw)), raw.unread_copy()):
        assert one.data == b'{"n":1}'
        with pytest.raises(MalformedEvent, match="not a notification of SNS"):
            _ = one.value
