"""Messages that cannot be decoded, beside others of the same answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from headrace.errors import HeadraceError, UpstreamError
from headrace.sources.sqs import producer as module
from headrace.sources.sqs.client import SqsClient
from headrace.sources.sqs.message import decode_record_again, raw_events
from headrace.sources.sqs.producer import PollSettings, SqsService
from headrace.triggers.raw_event import Message

GOOD = {
    "MessageId": "good",
    "ReceiptHandle": "r-1",
    "Body": json.dumps({"Type": "Notification", "MessageId": "n", "TopicArn": "arn:orders", "Message": '{"n":1}'}),
    "Attributes": {"MessageGroupId": "ada"},
}


def messages_with(body: str) -> list[dict[str, Any]]:
    return [GOOD, GOOD | {"MessageId": "bad", "ReceiptHandle": "r-2", "Body": body}]


class Client:
    """Returns the same messages to all polls."""

    def __init__(self, messages: Sequence[Mapping[str, Any]]) -> None:
        self.messages = messages

    async def receive(self, visibility: int, wait: int, attempt_id: str | None) -> Sequence[Mapping[str, Any]]:
        return self.messages


def service_of(messages: Sequence[Mapping[str, Any]], *decoding: Any) -> SqsService:
    return SqsService(cast("SqsClient", cast(Any, Client(messages))), PollSettings("orders.fifo", decoding, 30, 1, None))


def fail_on_bad(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the decoding of the message `bad` raise an error."""

    def decode(message: Mapping[str, Any], lane: str, decoding: Any) -> list[Message]:
        if message["MessageId"] == "bad":
            raise error
        return raw_events(message, lane, decoding)

    monkeypatch.setattr(module, "raw_events", decode)


@pytest.mark.parametrize("step", ["sns", "eventbridge", "s3"])
async def test_a_body_that_is_nested_too_deeply_leaves_the_others_of_its_answer(step: str) -> None:
    body = '{"x":' + "[" * 100_000 + "]" * 100_000 + "}"
    answer = await service_of(messages_with(body), step).poll()()
    assert [received.id for received in answer.messages] == ["good", "bad"]
    ((raw,), (malformed,)) = (received.events for received in answer.messages)
    assert malformed.malformed is not None
    assert malformed.data == body.encode()
    assert (raw.malformed is None) == (step == "sns")


@pytest.mark.parametrize(("steps", "id"), [(("sns",), "bad"), (("sns", "s3"), "bad/0")])
async def test_an_unexpected_error_of_one_message_makes_it_malformed(monkeypatch: pytest.MonkeyPatch, steps: Any, id: str) -> None:
    fail_on_bad(monkeypatch, ZeroDivisionError("unexpected"))
    answer = await service_of(messages_with(GOOD["Body"]), *steps).poll()()  # type: ignore[arg-type]
    assert [(received.id, received.receipt, received.group, received.lane) for received in answer.messages] == [
        ("good", "r-1", "ada", "ada"),
        ("bad", "r-2", "ada", "ada"),
    ]
    (raw,) = answer.messages[1].events
    assert raw.malformed == "The message cannot be decoded: ZeroDivisionError: unexpected."
    assert (raw.id, raw.lane, raw.key, raw.data) == (id, "ada", "ada", str(GOOD["Body"]).encode())
    again = decode_record_again(raw, ["sns"])
    assert (again.malformed, again.data, again.id) == (None, b'{"n":1}', "bad")


@pytest.mark.parametrize("error", [UpstreamError("The decoder cannot be imported."), MemoryError()])
async def test_an_error_that_is_not_of_the_message_ends_the_poll(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    fail_on_bad(monkeypatch, error)
    with pytest.raises((HeadraceError, MemoryError)) as raised:
        await service_of(messages_with("{}"), "sns").poll()()
    assert raised.value is error
