"""A value is decoded by the format or the function that an upstream declares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedEvent, ProjectError, UpstreamError
from headrace.project import Project
from headrace.sources.declared_decoder import check_decoding, decoder_of, is_function
from headrace.sources.decoding import DECODERS, decode_or_reason
from headrace.sources.kafka.upstream import Kafka
from headrace.sources.kinesis.upstream import Kinesis
from headrace.sources.mqtt.upstream import Mqtt
from headrace.sources.nats.upstream import Nats
from headrace.sources.objects.upstream import ObjectStore
from headrace.sources.pubsub.upstream import PubSub
from headrace.sources.pulsar.upstream import Pulsar
from headrace.sources.rabbitmq.upstream import RabbitMQ
from headrace.sources.redis.upstream import RedisStreams
from headrace.sources.service_bus.upstream import ServiceBus
from headrace.sources.sqs.upstream import SQS
from headrace.triggerer.builtin_upstream import is_builtin_stream
from headrace.triggers.import_allowlist import IMPORT_ALLOWLIST
from headrace.triggers.upstream import Upstream, load_upstream
from headrace.triggers.watch import WatchTrigger
from headrace.wire.status.upstreams import KINDS


class SilentError(Exception):
    """An error that cannot be printed."""

    def __str__(self) -> str:
        raise ValueError("no text")


RESULTS: dict[bytes, Any] = {
    b"object": {"n": 1},
    b"json": b'{"n":1}',
    b"text": "ü",
    b"null": None,
    b"nan": {"n": [float("nan")]},
    b"object()": object(),
    b"half": "\ud800",
    b"tuple key": {(1, 2): 3},
    b"error": SilentError(),
    b"exit": SystemExit(3),
    b"interrupt": KeyboardInterrupt(),
    b"deep": RecursionError("too deep"),
    b"reason": MalformedEvent("The price is negative."),
}


def order(value: bytes, headers: Mapping[str, str]) -> Any:
    result = RESULTS[value]
    if isinstance(result, BaseException):
        raise result
    return result


def first_header(value: bytes, headers: Mapping[str, str]) -> Any:
    return {"value": value.decode(), **headers}


async def later(value: bytes, headers: Mapping[str, str]) -> Any:
    return value


class Decoders:
    @staticmethod
    def nested(value: bytes, headers: Mapping[str, str]) -> Any:
        return value


ORDER = f"{__name__}:order"


def decoded(value: bytes | None, headers: Any = ()) -> Any:
    return json.loads(decoder_of(ORDER)(value, headers).data)


@pytest.mark.parametrize(("value", "expected"), [(b"object", {"n": 1}), (b"json", {"n": 1}), (b"text", "ü"), (b"null", None), (None, None)])
def test_a_function_returns_a_json_value_or_json_text(value: bytes | None, expected: Any) -> None:
    assert decoded(value) == expected


def test_a_function_gets_headers_as_text() -> None:
    headers = [("a", b"1"), ("b", b"\xff"), ("empty", None)]
    assert json.loads(decoder_of(f"{__name__}:first_header")(b"x", headers).data) == {"value": "x", "a": "1", "b": "\ufffd"}


@pytest.mark.parametrize(
    "value", [b"nan", b"object()", b"half", b"tuple key", b"error", b"exit", b"interrupt", b"deep", b"reason", b"unknown"]
)
def test_whatever_a_function_raises_or_returns_fails_its_message_only(value: bytes) -> None:
    (data, id), reason = decode_or_reason(decoder_of(ORDER), value, ())
    assert (data, id) == (value, None)
    assert reason is not None
    assert "test_declared_decoder:order" in reason


def test_the_reason_that_a_function_gives_is_in_the_dead_letter() -> None:
    assert decode_or_reason(decoder_of(ORDER), b"reason", ())[1] == f"The decoder {ORDER} failed: MalformedEvent: The price is negative."


@pytest.mark.parametrize("decode", [*DECODERS, ORDER, "shop:order", "shop.decoding:order"])
def test_formats_and_paths_of_functions_are_accepted(decode: str) -> None:
    assert check_decoding(decode) == decode


def test_a_function_is_declared_by_its_path() -> None:
    assert check_decoding(order) == ORDER


@pytest.mark.parametrize(
    "decode", ["", "xml", ":order", "shop:", "shop.:order", "shop:a.b", "shop:order:x", "shop order:x", 7, None, b"json", []]
)
def test_other_decodings_are_refused(decode: object) -> None:
    with pytest.raises(UpstreamError, match="Invalid decode"):
        check_decoding(decode)


@pytest.mark.parametrize("function", [lambda value, headers: value, Decoders.nested, int.from_bytes])
def test_a_function_without_a_path_is_refused(function: Any) -> None:
    with pytest.raises(UpstreamError, match="another process cannot import it"):
        check_decoding(function)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no_such_module:order", "No module named"),
        (f"{__name__}:missing", "no attribute"),
        (f"{__name__}:later", "is not a function that"),
        (f"{__name__}:ORDER", "is not a function that"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_when_the_project_loads(path: str, reason: str) -> None:
    project = Project("shop")
    project.watch("orders", Kafka("orders", group="shop", decode=path))
    with pytest.raises(UpstreamError, match=reason):
        project.declaration()


def test_a_function_of_a_module_that_is_not_allowed_is_not_imported(tmp_path: Any) -> None:
    IMPORT_ALLOWLIST.allow_only([], tmp_path)
    try:
        with pytest.raises(ProjectError, match="not allowed"):
            decoder_of("antigravity:order")
    finally:
        IMPORT_ALLOWLIST.any()


UPSTREAMS = [
    lambda decode: Kafka("orders", group="shop", decode=decode),
    lambda decode: Kinesis("orders", group="shop", decode=decode),
    lambda decode: Nats(stream="orders", durable="shop", decode=decode),
    lambda decode: Mqtt("orders", client_id="shop", decode=decode),
    lambda decode: RabbitMQ("orders", decode=decode),
    lambda decode: RedisStreams("orders", group="shop", payload="data", decode=decode),
    lambda decode: Pulsar("orders", subscription="shop", decode=decode),
    lambda decode: PubSub("orders", decode=decode),
    lambda decode: ServiceBus("orders", decode=decode),
    lambda decode: ServiceBus("orders", "billing", sessions=2, decode=decode),
    lambda decode: SQS("orders", decode=decode),
    lambda decode: SQS("orders", decode=("sns", decode)),
    lambda decode: ObjectStore("s3://orders", read="lines", decode=decode),
]


@pytest.mark.parametrize("make", UPSTREAMS)
def test_an_upstream_with_a_function_runs_in_a_process_for_users_code(make: Any) -> None:
    upstream: Upstream = make(order)
    for watched, is_builtin in ((upstream, False), (load_upstream(*upstream.serialize()), False), (make("text"), True)):
        _, kwargs = WatchTrigger(upstream=watched).serialize()
        assert is_builtin_stream(WatchTrigger, kwargs) is is_builtin


@given(st.text(max_size=40))
def test_any_text_is_a_decoding_or_refused(text: str) -> None:
    try:
        assert check_decoding(text) == text
    except UpstreamError:
        assert text not in DECODERS
        assert not is_function(text)


@pytest.mark.parametrize("make", UPSTREAMS)
def test_the_kind_of_each_upstream_is_known_to_the_status(make: Any) -> None:
    assert make("text").stream_key().partition(":")[0] in KINDS
