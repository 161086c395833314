"""Connections of NATS: addresses, credentials, TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.nats.settings import ClientSettings, client_settings


def settings(text: str) -> ClientSettings:
    return client_settings(parse_connection("nats", text))


def test_addresses() -> None:
    assert settings("nats://nats.example").servers == ("nats://nats.example:4222",)
    assert settings("nats://nats.example:14222").servers == ("nats://nats.example:14222",)
    assert settings("nats://[::1]:14222").servers == ("nats://[::1]:14222",)
    assert settings('{"kind": "nats", "host": "a, b:1,[::1]:2"}').servers == ("nats://a:4222", "nats://b:1", "nats://[::1]:2")


def test_credentials() -> None:
    assert settings("nats://ada:secret@nats.example").options == {"user": "ada", "password": "secret"}
    assert settings("nats://token@nats.example").options == {"token": "token"}
    assert settings("nats://nats.example?token=t").options == {"token": "t"}
    assert settings("nats://nats.example?nkey_seed=SU").options == {"nkeys_seed_str": "SU"}
    assert settings("nats://nats.example?credentials=text").credentials == "text"
    with pytest.raises(UpstreamError, match="several credentials: token, login"):
        settings("nats://ada:secret@nats.example?token=t")


def test_tls() -> None:
    options = settings("nats://nats.example?tls=true&tls_hostname=other&tls_first=true").options
    assert isinstance(options["tls"], ssl.SSLContext)
    assert options["tls"].check_hostname
    assert (options["tls_hostname"], options["tls_handshake_first"]) == ("other", True)
    assert settings("nats://nats.example?tls=false").options == {}


def test_certificates_that_cannot_be_loaded_are_named(tmp_path: Path) -> None:
    with pytest.raises(UpstreamError, match=r"ca_file .*missing\.pem is not a file"):
        settings(f"nats://nats.example?ca_file={tmp_path / 'missing.pem'}")
    (tmp_path / "bad.pem").write_text("no certificate")
    with pytest.raises(UpstreamError, match="certificates cannot be loaded"):
        settings(f"nats://nats.example?cert_file={tmp_path / 'bad.pem'}")


def test_domain_and_inbox() -> None:
    chosen = settings("nats://nats.example?domain=hub&inbox_prefix=_INBOX_shop")
    assert (chosen.api_prefix, chosen.options) == ("$JS.hub.API", {"inbox_prefix": "_INBOX_shop"})
    assert settings("nats://nats.example").api_prefix == "$JS.API"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("kafka://a", "is of kind 'kafka', not 'nats'"), ("nats://", "has no address"), ("nats://a?usr=1", "unknown settings: usr")],
)
def test_other_connections_are_refused(text: str, problem: str) -> None:
    with pytest.raises(UpstreamError, match=problem):
        settings(text)
