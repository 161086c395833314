from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.sqs.envelopes import Record, check_steps, unpack

DEEP = "[" * 100_000 + "]" * 100_000
OBJECT = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "landing"}, "object": {"key": "a+b/%C3%BC.json", "sequencer": "1"}}}


def sns(message: str, **fields: Any) -> str:
    return json.dumps({"Type": "Notification", "MessageId": "m-1", "TopicArn": "arn:aws:sns:eu:1:orders", "Message": message} | fields)


@pytest.mark.parametrize(("argument", "steps"), [("json", ("json",)), (["sns", "s3"], ("sns", "s3")), (("eventbridge",), ("eventbridge",))])
def test_valid_steps(argument: Any, steps: tuple[str, ...]) -> None:
    assert check_steps(argument) == steps


@pytest.mark.parametrize("argument", ["xml", (), ("s3", "sns"), ("json", "sns"), 3, None])
def test_invalid_steps_are_refused(argument: Any) -> None:
    with pytest.raises(UpstreamError, match="Invalid decode"):
        check_steps(argument)


def test_json_is_unchanged() -> None:
    assert unpack('{"a": 1.50}', ["json"]) == [Record(b'{"a": 1.50}')]


def test_text_becomes_an_object() -> None:
    assert unpack('a "b"', ["text"]) == [Record(b'{"text":"a \\"b\\""}')]


def test_a_notification_of_sns_gives_its_message_and_attributes() -> None:
    body = sns('{"n":1}', Subject="news", MessageAttributes={"kind": {"Type": "String", "Value": "paid"}}, Timestamp="2026-01-01T00:00:00Z")
    [record] = unpack(body, ["sns"])
    assert record.data == b'{"n":1}'
    assert dict(record.headers) == {
        "sns_message_id": b"m-1",
        "sns_topic": b"arn:aws:sns:eu:1:orders",
        "sns_subject": b"news",
        "kind": b"paid",
    }


def test_an_event_of_eventbridge_gives_its_detail() -> None:
    body = {"version": "0", "id": "e-1", "detail-type": "Order", "source": "shop", "account": "1", "region": "eu", "detail": {"n": 1}}
    [record] = unpack(json.dumps(body), ["eventbridge"])
    assert record.data == b'{"n": 1}'
    headers = dict(record.headers)
    assert (headers["eventbridge_id"], headers["detail_type"], headers["source"], "time" in headers) == (b"e-1", b"Order", b"shop", False)


@pytest.mark.parametrize("steps", [["s3"], ["sns", "s3"]])
def test_a_notification_of_s3_gives_one_record_per_object(steps: Any) -> None:
    other = json.loads(json.dumps(OBJECT).replace("a+b/%C3%BC.json", "c"))
    body = json.dumps({"Records": [OBJECT, other]})
    records = unpack(sns(body) if "sns" in steps else body, steps)
    assert [json.loads(record.data) for record in records] == [OBJECT, other]
    assert [record.key for record in records] == ["landing/a b/ü.json", "landing/c"]
    assert all(record.malformed is None for record in records)


@pytest.mark.parametrize("body", ['{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"landing"}', '{"Records":[]}'])
def test_a_notification_of_s3_may_have_no_record(body: str) -> None:
    assert unpack(body, ["s3"]) == []


@pytest.mark.parametrize(
    ("body", "steps"),
    [
        ("not json", ["sns"]),
        ("not json", ["eventbridge"]),
        ("not json", ["s3"]),
        ("[]", ["s3"]),
        ("{}", ["sns"]),
        ('{"Type":"SubscriptionConfirmation","MessageId":"m","TopicArn":"t","Message":"x"}', ["sns"]),
        ('{"id":"1","source":"s","detail-type":"t"}', ["eventbridge"]),
        ("{}", ["s3"]),
        ('{"Event":"other"}', ["s3"]),
        ('{"Records":[{"s3":{"bucket":{"name":"b"}}}]}', ["s3"]),
        ("\ud800", ["sns", "s3"]),
    ],
)
def test_another_envelope_is_one_record_with_its_content_and_a_reason(body: str, steps: Any) -> None:
    [record] = unpack(body, steps)
    assert record.data == body.encode(errors="surrogatepass")
    assert record.malformed is not None
    assert record.malformed.startswith("The message is not a")


@pytest.mark.parametrize("step", ["sns", "eventbridge", "s3", "cloudevents", "debezium"])
@pytest.mark.parametrize(
    "body",
    [
        f'{{"x":{DEEP}}}',
        f'{{"id":"1","source":"a","detail-type":"t","detail":{DEEP}}}',
        f'{{"Records":[{{"s3":{{"bucket":{{"name":"b"}},"object":{{"key":"k"}}}},"x":{DEEP}}}]}}',
    ],
    ids=["any", "detail", "record"],
)
def test_a_body_that_is_nested_too_deeply_is_malformed(step: Any, body: str) -> None:
    [record] = unpack(body, [step])
    assert record.data == body.encode()
    assert "recursion" in (record.malformed or "")


def test_attributes_of_sns_do_not_replace_headers_of_envelopes_and_of_the_queue() -> None:
    event = {"id": "e-1", "detail-type": "Order", "source": "shop", "detail": {"n": 1}}
    names = ("sns_topic", "sns_message_id", "sns_subject", "eventbridge_id", "source", "account", "SequenceNumber", "kind", "ce_id")
    attributes = {name: {"Type": "String", "Value": "sent"} for name in names}
    for steps in (["sns", "eventbridge"], ["eventbridge", "sns"]):
        inner = sns(json.dumps(event), MessageAttributes=attributes) if steps[0] == "sns" else None
        body = inner or json.dumps(event | {"detail": json.loads(sns("{}", MessageAttributes=attributes))})
        [record] = unpack(body, steps, [("SequenceNumber", b"18")])
        assert record.malformed is None
        headers = dict(record.headers)
        assert (headers["sns_topic"], headers["sns_message_id"]) == (b"arn:aws:sns:eu:1:orders", b"m-1")
        assert (headers["eventbridge_id"], headers["source"], headers["SequenceNumber"]) == (b"e-1", b"shop", b"18")
        assert {"sns_subject", "account"}.isdisjoint(headers), "which the envelopes do not have"
        assert (headers["kind"], headers["ce_id"]) == (b"sent", b"sent")


def test_names_of_undeclared_envelopes_are_free() -> None:
    [record] = unpack(sns("{}", MessageAttributes={"source": {"Type": "String", "Value": "shop"}}), ["sns"])
    assert dict(record.headers)["source"] == b"shop"


def test_a_content_that_is_no_json_is_left_to_the_raw_event() -> None:
    assert [(record.data, record.malformed) for record in unpack(sns("plain text"), ["sns"])] == [(b"plain text", None)]


def test_a_format_follows_an_envelope() -> None:
    event = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order", "data": {"n": 1}}
    [record] = unpack(sns(json.dumps(event)), ["sns", "cloudevents"])
    assert (json.loads(record.data), record.id, record.malformed) == (event, "%2Fshop/7", None)


def test_attributes_of_a_message_are_those_of_a_cloudevent_in_binary_mode() -> None:
    headers = [("ce_specversion", b"1.0"), ("ce_id", b"7"), ("ce_source", b"/shop"), ("ce_type", b"order")]
    [record] = unpack('{"n": 1}', ["cloudevents"], headers)
    assert json.loads(record.data) == {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order", "data": {"n": 1}}


@pytest.mark.parametrize(("step", "reason"), [("cloudevents", "Not a CloudEvent"), ("debezium", "Not a change event of Debezium")])
def test_a_body_in_another_format_is_malformed(step: Any, reason: str) -> None:
    [record] = unpack('{"n": 1}', [step])
    assert record.data == b'{"n": 1}'
    assert (record.malformed or "").startswith(reason)
