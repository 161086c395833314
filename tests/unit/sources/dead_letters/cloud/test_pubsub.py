"""Answers of Pub/Sub that the fake of the broker tests does not give: permissions, and a request that is rejected for one message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import zip_longest
from typing import Any

import grpc.aio
import pytest
from google.pubsub_v1.types import PublishRequest, PublishResponse

from headrace import PubSub
from headrace.core.values.message_text import MessageMetadata
from headrace.errors import CopyRejected, HeadraceError, StreamError, UpstreamError
from headrace.sources.dead_letters.cloud.pubsub import MAX_VALUE_BYTES, attributes_of, cut_value
from headrace.sources.dead_letters.sender import make_sender
from support.processes.broker_server import connection_variable
from support.sources.dead_letters import copy_of

DENIED = grpc.StatusCode.PERMISSION_DENIED


class Service:
    """Answers the requests of a sender that may publish and see nothing. It fails at messages with the name of a status code as data."""

    def __init__(self) -> None:
        self.requests: list[list[bytes]] = []
        self.see: grpc.StatusCode = DENIED
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    "google.pubsub.v1.Publisher",
                    {
                        "Publish": grpc.unary_unary_rpc_method_handler(self._publish),
                        "GetTopic": grpc.unary_unary_rpc_method_handler(self._see),
                    },
                ),
                grpc.method_handlers_generic_handler(
                    "google.pubsub.v1.Subscriber", {"GetSubscription": grpc.unary_unary_rpc_method_handler(self._see)}
                ),
            ]
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    async def start(self) -> None:
        await self._server.start()

    async def close(self) -> None:
        await self._server.stop(None)

    async def _see(self, request: bytes, context: Any) -> bytes:
        del request
        await context.abort(self.see, "not to be seen")
        raise AssertionError

    async def _publish(self, request: bytes, context: Any) -> bytes:
        messages = PublishRequest.deserialize(request).messages
        data = [message.data for message in messages]
        self.requests.append(data)
        if len({message.ordering_key for message in messages}) > 1:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "all messages must have no ordering key or the same ordering key")
        for one in data:
            if one.decode() in grpc.StatusCode.__members__:
                await context.abort(grpc.StatusCode[one.decode()], "refused")
        ids = ["m"] * (len(data) - data.count(b"unconfirmed"))
        return bytes(PublishResponse.serialize(PublishResponse(message_ids=ids)))


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    service = Service()
    await service.start()
    monkeypatch.setenv(connection_variable("pubsub"), f"pubsub://{service.address}/shop?emulator=true")
    yield service
    await service.close()


async def send(*data: bytes, keys: Sequence[str | None] = ()) -> list[type[HeadraceError] | None]:
    """Send copies with these data and keys, and return the class of each result."""
    sender = make_sender(PubSub("orders", dead_letter_topic="dead"))
    copies = [copy_of(number, one, MessageMetadata(key)) for number, (one, key) in enumerate(zip_longest(data, keys))]
    try:
        results = await sender.send(copies)
    finally:
        await sender.aclose()
    return [None if result is None else type(result) for result in results]


async def test_a_publisher_need_not_see_the_topic_and_the_subscription(service: Service) -> None:
    assert await send(b"a", b"b") == [None, None]
    assert service.requests == [[b"a", b"b"]]


async def test_the_messages_of_a_rejected_request_are_sent_one_by_one(service: Service) -> None:
    assert await send(b"a", b"INVALID_ARGUMENT", b"b") == [None, CopyRejected, None]
    assert [len(request) for request in service.requests] == [3, 1, 1, 1]


async def test_nothing_is_sent_after_a_message_that_the_service_takes_later(service: Service) -> None:
    data = [b"a", b"INVALID_ARGUMENT", b"RESOURCE_EXHAUSTED", b"b"]
    assert await send(*data) == [None, CopyRejected, StreamError, StreamError]
    assert service.requests == [data, *([one] for one in data[:3])]


async def test_a_request_has_messages_of_one_ordering_key_in_their_order(service: Service) -> None:
    keys = ["x", "x", "y", None, None, "x", "k" * 1_025]
    assert await send(b"0", b"1", b"2", b"3", b"4", b"5", b"6", keys=keys) == [None] * 7
    assert service.requests == [[b"0", b"1"], [b"2"], [b"3", b"4"], [b"5"], [b"6"]], "a key that is too long is left out"


async def test_nothing_of_another_ordering_key_is_sent_after_a_message_that_the_service_takes_later(service: Service) -> None:
    assert await send(b"a", b"UNAVAILABLE", b"b", b"c", keys=["x", "y", "x", "x"]) == [None, *[StreamError] * 3]
    assert service.requests == [[b"a"], [b"UNAVAILABLE"]]


@pytest.mark.parametrize(
    ("code", "kind"), [("PERMISSION_DENIED", UpstreamError), ("NOT_FOUND", UpstreamError), ("UNAVAILABLE", StreamError)]
)
async def test_an_error_of_a_request_is_that_of_all_its_messages(service: Service, code: str, kind: type[HeadraceError]) -> None:
    assert await send(b"a", code.encode(), b"b") == [kind] * 3
    assert len(service.requests) == 1


async def test_a_request_whose_messages_do_not_all_have_ids_is_not_confirmed(service: Service) -> None:
    assert await send(b"a", b"unconfirmed") == [StreamError] * 2


async def test_an_invalid_name_is_an_error_before_the_first_copy(service: Service) -> None:
    service.see = grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(UpstreamError, match="cannot be sent"):
        await send(b"a")
    assert service.requests == []


def test_a_long_value_is_cut_between_characters_and_an_array_between_names() -> None:
    assert cut_value("reason", "é".encode() * 2_000) == "é".encode() * (MAX_VALUE_BYTES // 2)
    assert cut_value("reason", b"x" + "é".encode() * 2_000) == b"x" + "é".encode() * (MAX_VALUE_BYTES // 2 - 1)
    assert cut_value("headrace-triggers", b'["%s","%s"]' % (b"a" * 509, b"b" * 508)) == b'["%s","%s"]' % (b"a" * 509, b"b" * 508)
    assert cut_value("headrace-triggers", b'["%s","%s"]' % (b"a" * 509, b"b" * 509)) == b'["%s"]' % (b"a" * 509)
    assert cut_value("headrace-triggers", b'["%s"]' % (b"a" * 2_000)) == b"[]"
    attributes = attributes_of([("bytes", b"\xff" * 5_000)], [])
    assert len(attributes.pop("bytes")) == MAX_VALUE_BYTES
    assert attributes == {"headrace-base64": '["bytes"]', "headrace-cut": '["bytes"]'}
