"""The settings of the client that a connection describes."""

from __future__ import annotations

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.redis.settings import client_settings


def test_all_parts_of_a_connection() -> None:
    connection = parse_connection("redis", "rediss://ada:p%40ss@redis.example:6380/3?ca_certs=/ca.pem&check_hostname=false")
    assert client_settings(connection) == {
        "host": "redis.example",
        "port": 6380,
        "db": 3,
        "username": "ada",
        "password": "p@ss",
        "ssl": True,
        "ssl_ca_certs": "/ca.pem",
        "ssl_check_hostname": False,
    }


@pytest.mark.parametrize(("kind", "tls"), [("redis", False), ("valkey", False), ("rediss", True), ("valkeys", True)])
def test_defaults(kind: str, tls: bool) -> None:
    settings = client_settings(parse_connection("redis", f"{kind}://"))
    assert (settings["host"], settings["port"], settings["db"], settings["ssl"]) == ("localhost", 6379, 0, tls)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kafka://x", "of kind 'kafka'"),
        ("redis://x/one", "the database 'one'"),
        ("redis://x?ca_certs=/ca.pem", "settings of TLS without TLS"),
        ("rediss://x?retries=3", "unknown settings: retries"),
        ("rediss://x?check_hostname=no", "check_hostname='no'"),
    ],
)
def test_wrong_parts_are_named(text: str, reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason) as raised:
        client_settings(parse_connection("redis", text))
    assert raised.value.hint
