"""Messages, envelopes, and queues that cannot be read."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Any

import pytest

from headrace.core.connection import parse_connection
from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import HeadraceError, MalformedEvent, StreamError, UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.testing.contract.reading import reading
from support.processes.broker_server import connection_variable
from support.processes.ports import free_port
from support.sources.reading import until_in_thread
from support.sources.sqs import MakeQueue, SqsQueue

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("sqs")]


def item(part: Any, **outcome: int) -> AdvanceItem:
    return AdvanceItem(part, AdvanceOutcome(**({"acked": 1, "failed": 0} | outcome)))


def s3_event(*keys: str) -> str:
    return json.dumps({"Records": [{"s3": {"bucket": {"name": "landing"}, "object": {"key": key}}} for key in keys]})


async def test_attributes_and_the_number_of_deliveries_are_read(fifo: SqsQueue) -> None:
    fifo.send(['{"n":1}'], group="ada", traceparent={"DataType": "String", "StringValue": "00-1"})
    async with reading(fifo.producer()) as stream:
        ((first, _),) = await stream.take(1)
    async with reading(fifo.producer()) as stream:
        ((raw, _),) = await stream.take(1)
    assert (raw.id, raw.key, raw.lane, raw.headers["traceparent"], raw.delivery) == (first.id, "ada", "ada", "00-1", 2)
    assert raw.timestamp is not None
    assert first.delivery == 1


async def test_a_message_of_several_records_is_deleted_when_all_are_answered(queue: SqsQueue) -> None:
    queue.send([s3_event("a", "b+c", "d")])
    async with reading(queue.producer(decode="s3")) as stream:
        items = await stream.take(3)
        assert [raw.key for raw, _ in items] == ["landing/a", "landing/b c", "landing/d"]
        assert len({raw.id for raw, _ in items}) == 3
        await stream.advance(items[:2])
        assert queue.count() == (0, 1)
        await stream.advance(items[2:])
        assert queue.count() == (0, 0)


async def test_all_records_of_a_message_come_again_after_one_failed(queue: SqsQueue) -> None:
    queue.send([s3_event("a", "b")])
    async with reading(queue.producer(decode="s3")) as stream:
        items = await stream.take(2)
        await stream.producer.advance([item(items[0][1]), item(items[1][1], failed=1)])
        again = await stream.take(2)
        assert [raw.id for raw, _ in again] == [raw.id for raw, _ in items]
        await stream.advance(again)
        assert queue.count() == (0, 0)


async def test_a_message_without_a_record_is_deleted(queue: SqsQueue) -> None:
    queue.send(['{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"landing"}'])
    async with reading(queue.producer(decode="s3")) as stream:
        queue.send([s3_event("a")])
        ((raw, _),) = await stream.take(1)
        assert raw.key == "landing/a"
        await until_in_thread(lambda: queue.count() == (0, 1))


async def test_a_notification_of_s3_through_sns(queue: SqsQueue) -> None:
    notification = {"Type": "Notification", "MessageId": "m", "TopicArn": "t", "Message": s3_event("a", "b")}
    queue.send([json.dumps(notification)])
    async with reading(queue.producer(decode=("sns", "s3"))) as stream:
        items = await stream.take(2)
    assert [(raw.key, raw.headers["sns_topic"]) for raw, _ in items] == [("landing/a", "t"), ("landing/b", "t")]


async def test_messages_that_do_not_decode_can_be_rejected_and_do_not_stop_the_queue(queue: SqsQueue) -> None:
    async with reading(queue.producer(decode="sns")) as stream:
        for body in ("no json", '{"an":"order"}', f'{{"x":{"[" * 50_000}{"]" * 50_000}}}'):
            queue.send([body])
            ((raw, part),) = await stream.take(1)
            assert raw.data == body.encode()
            with pytest.raises(MalformedEvent, match="not a notification of SNS"):
                _ = raw.value
            await stream.producer.advance([item(part, acked=0, rejected=1)])
        assert queue.count() == (0, 0)


async def test_a_redrive_policy_with_few_deliveries_is_logged(make_queue: MakeQueue, capsys: pytest.CaptureFixture[str]) -> None:
    dead = make_queue()
    arn = f"arn:aws:sqs:elasticmq:000000000000:{dead.name}"
    queue = make_queue(RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "3"}))
    queue.send(["1"])
    async with reading(queue.producer()) as stream:
        await stream.take(1)
    output = capsys.readouterr()
    assert "redrive policy of a queue with few deliveries" in output.out + output.err


async def test_a_missing_queue_is_named(queue: SqsQueue) -> None:
    upstream = type(queue.upstream())("missing", connection=queue.connection)
    with pytest.raises(UpstreamError, match="'missing' cannot be opened") as raised:
        async with reading(upstream.producer()) as stream:
            await stream.take(1)
    assert "Create the queue" in str(raised.value.hint)


async def test_a_service_that_does_not_answer_is_named(queue: SqsQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.sqs.client.OPEN_SECONDS", 1.0)
    queue.set_address(f"127.0.0.1:{free_port()}")
    with pytest.raises(StreamError, match="the service does not answer") as raised:
        async with reading(queue.producer()) as stream:
            await stream.take(1)
    assert raised.value.hint is not None


async def test_a_connection_without_a_region_says_what_to_set(queue: SqsQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv(connection_variable(queue.connection), "sqs://x:y@")
    with pytest.raises(UpstreamError, match="cannot be used") as raised:
        async with reading(queue.producer()) as stream:
            await stream.take(1)
    assert "region" in str(raised.value.hint)


async def test_a_queue_that_is_deleted_ends_the_stream(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.send(["1"])
    async with reading(queue.producer()) as stream:
        items = await stream.take(1)
        await asyncio.to_thread(queue.server.delete_queue, queue.name)
        with pytest.raises(UpstreamError, match="cannot be read"):
            await stream.take(1)
        with pytest.raises(UpstreamError, match="cannot be deleted"):
            await stream.advance(items)
    queue.server.client.create_queue(QueueName=queue.name)  # which the fixture deletes


async def test_the_test_of_a_connection_counts_the_queues(queue: SqsQueue) -> None:
    text = os.environ[connection_variable(queue.connection)]
    for kind in ("sqs", "aws"):
        line = await asyncio.to_thread(probe_connection, parse_connection("sqs", text.replace("sqs://", f"{kind}://", 1)))
        assert re.fullmatch(r"SQS at http://127\.0\.0\.1:\d+: [1-9]\d* queues", line)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("sqs://test:test@127.0.0.1:1?region=eu-west-1&scheme=http", StreamError, "does not answer"),
        ("sqs://test@127.0.0.1:9?region=eu-west-1", UpstreamError, "half of the credentials"),
        ("sqs://127.0.0.1:9?regoin=eu-west-1", UpstreamError, "unknown settings: regoin"),
    ],
)
async def test_the_test_of_a_wrong_connection_says_why(text: str, kind: type[HeadraceError], message: str) -> None:
    with pytest.raises(kind, match=message):
        await asyncio.to_thread(probe_connection, parse_connection("sqs", text))
