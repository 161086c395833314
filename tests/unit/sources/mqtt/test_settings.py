"""Connections of the kinds `mqtt` and `mqtts`."""

from __future__ import annotations

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.mqtt.settings import Address, address_of


def address(url: str) -> Address:
    return address_of(parse_connection("plant", url))


def test_a_connection_has_address_and_credentials_which_its_repr_does_not_show() -> None:
    plain = address("mqtt://ada:s3%2Fcret@mqtt.example")
    assert (plain.host, plain.port, plain.login, plain.password, plain.keepalive, plain.tls) == (
        "mqtt.example",
        1883,
        "ada",
        "s3/cret",
        10,
        None,
    )
    assert "s3" not in repr(plain)
    secure = address("mqtts://mqtt.example:9000?cafile=/ca.pem&keepalive=60")
    assert (secure.port, secure.login, secure.keepalive, secure.tls) == (9000, None, 60, {"cafile": "/ca.pem"})
    assert address("mqtts://mqtt.example").tls == {}


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("kafka://mqtt.example", "is of kind 'kafka'"),
        ("mqtt://", "has no host"),
        ("mqtt://mqtt.example/path", "has a path"),
        ("mqtt://mqtt.example?keepalives=3", "unknown settings: keepalives"),
        ("mqtt://mqtt.example?keepalive=0", "invalid keepalive '0'"),
        ("mqtt://mqtt.example?keepalive=601", "invalid keepalive '601'"),
        ("mqtt://mqtt.example?keepalive=1.5", "invalid keepalive '1.5'"),
        ("mqtt://mqtt.example?cafile=/ca.pem", "without TLS"),
    ],
)
def test_an_invalid_connection_is_named_with_a_hint(url: str, reason: str) -> None:
    with pytest.raises(UpstreamError, match=f"Connection 'plant' .*{reason}") as raised:
        address(url)
    assert raised.value.hint
