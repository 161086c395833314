from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from headrace.errors import MalformedEvent
from headrace.sources.sqs.message import decode_record_again, group_of, raw_events

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


def strings(**values: str) -> dict[str, Any]:
    """Return message attributes."""
    return {name: {"DataType": "String", "StringValue": value} for name, value in values.items()}


def test_message_attributes_do_not_replace_headers_of_the_queue() -> None:
    sent = strings(SequenceNumber="sent", MessageDeduplicationId="sent", AWSTraceHeader="sent", kind="paid")
    [raw] = raw_events(MESSAGE | {"MessageAttributes": sent}, "g", ["json"])
    assert raw.headers == {"SequenceNumber": "15421642055578812416", "kind": "paid"}
    assert raw.metadata.headers[-1][0] == "SequenceNumber", "after all that a sender can set"


def test_message_attributes_with_names_of_a_declared_envelope_are_dropped() -> None:
    body = json.dumps({"Type": "Notification", "MessageId": "n-1", "TopicArn": "arn:orders", "Message": "{}"})
    sent = strings(sns_topic="arn:payments", sns_subject="sent", kind="paid")
    message = {"MessageId": "m-1", "Body": body, "MessageAttributes": sent}
    [raw] = raw_events(message, "q", ["sns"])
    assert raw.headers == {"kind": "paid", "sns_message_id": "n-1", "sns_topic": "arn:orders"}
    [raw] = raw_events(message, "q", ["json"])
    assert raw.headers == {"kind": "paid", "sns_topic": "arn:payments", "sns_subject": "sent"}


@pytest.mark.parametrize(("step", "mark"), [("sns", "sns_message_id"), ("eventbridge", "eventbridge_id")])
def test_a_message_attribute_does_not_say_that_an_envelope_was_removed(step: Any, mark: str) -> None:
    [raw] = raw_events({"MessageId": "m-1", "Body": '{"status":"paid"}', "MessageAttributes": strings(**{mark: "x"})}, "q", [step])
    assert raw.malformed is not None
    assert decode_record_again(raw, [step]).malformed == raw.malformed
