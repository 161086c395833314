"""Addresses of RabbitMQ in connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.connections.tls import client_context
from headrace.sources.rabbitmq.settings import Address, address_of


def address(text: str) -> Address:
    return address_of(parse_connection("rabbit", text))


def test_an_address_without_details_has_those_of_a_new_server() -> None:
    assert address("amqp://rabbit.example") == Address("amqp", "rabbit.example", 5672, "guest", "guest", "/", 10, None, None)


def test_names_in_an_address_are_unquoted() -> None:
    found = address("amqps://ada:s%2Fcret@rabbit.example:5555/%2Fshop?heartbeat=30&cafile=/ca.pem&management=https://rabbit.example:15671/")
    assert found == Address(
        "amqps", "rabbit.example", 5555, "ada", "s/cret", "/shop", 30, {"cafile": "/ca.pem"}, "https://rabbit.example:15671"
    )
    assert "cret" not in repr(found)


@pytest.mark.parametrize("path", ["", "/", "/%2F"])
def test_an_empty_path_and_a_slash_name_the_default_virtual_host(path: str) -> None:
    assert address(f"amqp://rabbit.example{path}").vhost == "/"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("redis://rabbit.example", "of kind 'redis'"),
        ("amqp://", "no host"),
        ("amqp://rabbit.example?heartbeat=0", "invalid heartbeat"),
        ("amqp://rabbit.example?heartbeat=soon", "invalid heartbeat"),
        ("amqp://rabbit.example?verify=no", "unknown settings: verify"),
        ("amqp://rabbit.example?cafile=/ca.pem", "without TLS"),
        ("amqp://rabbit.example?management=rabbit.example", "management API"),
    ],
)
def test_an_invalid_address_is_named_with_a_hint(text: str, reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason) as raised:
        address(text)
    assert raised.value.hint


def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    with pytest.raises(UpstreamError, match="certificates of the connection"):
        client_context(address(f"amqps://rabbit.example?cafile={tmp_path}/missing.pem").tls)
