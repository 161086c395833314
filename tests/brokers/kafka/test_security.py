"""TLS, SASL and OAUTHBEARER on a real server: what is accepted, what is refused, and what no output contains."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest

from headrace.core.connection import Connection
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.sources.peeks.peek import PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from support.processes.certificates import Authority
from support.processes.execution_api import serving
from support.processes.ports import free_port
from support.processes.secure_kafka import SCRAM_USER, SecureKafkaServer, shared
from support.processes.token_endpoint import TokenEndpoint
from support.sources.reading import numbers, until
from support.sources.secure_kafka import KEY_PASSWORD, MECHANISMS, Mechanism, SecureTopic, changed, secure_connection

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka-security")]


@pytest.fixture
def server() -> SecureKafkaServer:
    return shared()


@pytest.fixture
def topic(server: SecureKafkaServer) -> Iterator[SecureTopic]:
    topic = SecureTopic(server)
    yield topic
    topic.close()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for a cluster that does not answer."""
    monkeypatch.setattr("headrace.sources.kafka.client.OPEN_SECONDS", 3.0)
    monkeypatch.setattr("headrace.sources.kafka.client.PROBE_SECONDS", 3.0)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_topic_is_read_and_advanced(server: SecureKafkaServer, topic: SecureTopic, mechanism: Mechanism) -> None:
    connection = secure_connection(server, mechanism)
    assert "1 broker, " in probe_connection(connection)
    server.send(topic.name, numbers(0, 50))
    async with reading(topic.producer(connection)) as stream:
        items = await stream.take(50)
        assert [raw.data for raw, _ in items] == numbers(0, 50)
        await stream.advance(items)
        assert stream.producer.get_errors() == {}
    assert topic.committed() == 50


def test_certificates_and_keys_may_be_in_the_connection(server: SecureKafkaServer) -> None:
    files = secure_connection(server, "mutual")
    texts = {f"ssl.{name}.pem": Path(files.extra[f"ssl.{name}.location"]).read_text() for name in ("ca", "certificate", "key")}
    connection = replace(files, extra=texts | {"ssl.key.password": KEY_PASSWORD})
    assert "1 broker, " in probe_connection(connection)


def test_a_token_endpoint_may_be_without_tls(server: SecureKafkaServer) -> None:
    connection = secure_connection(server, "oauth")
    plain = TokenEndpoint(like=server.tokens)
    try:
        assert "1 broker, " in probe_connection(changed(connection, {"sasl.oauthbearer.token.endpoint.url": plain.url}))
    finally:
        plain.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_command_tests_a_connection_and_shows_no_secret(server: SecureKafkaServer, mechanism: Mechanism, tmp_path: Path) -> None:
    connection = secure_connection(server, mechanism)
    with serving(tmp_path) as api:
        assert api.run("connections", "set", "kafka", given=connection.url).returncode == 0
        tested = api.run("connections", "test", "kafka")
        assert (tested.returncode, "1 broker, " in tested.stdout) == (0, True), tested.stderr
        shown = [api.run("connections", "show", "kafka"), api.run("connections", "list", "--json")]
        wrong = replace(connection, password="wrong-password", extra=dict(connection.extra) | {"ssl.key.password": "wrong-password"})
        assert api.run("connections", "set", "kafka", given=wrong.url).returncode == 0
        refused = api.run("connections", "test", "kafka")
        assert (refused.returncode, "Traceback" in refused.stderr) == (2, False), refused.stderr
    written = "".join(one.stdout + one.stderr for one in (tested, *shown, refused))
    _assert_no_secrets(server, connection, written)
    assert "wrong-password" not in written


class Refusal(NamedTuple):
    """A change of a connection that makes it unusable, with a part of the reason and of the hint."""

    mechanism: Mechanism
    change: Callable[[SecureKafkaServer, Connection], Connection]
    reason: str
    hint: str


def _wrong_password(server: SecureKafkaServer, connection: Connection) -> Connection:
    del server
    return replace(connection, password=f"wrong-{connection.password}")


def _unknown_user(server: SecureKafkaServer, connection: Connection) -> Connection:
    del server
    return replace(connection, login="nobody")


def _extra(**settings: Any) -> Callable[[SecureKafkaServer, Connection], Connection]:
    """Return the change of settings, with underscores for dots."""

    def change(server: SecureKafkaServer, connection: Connection) -> Connection:
        del server
        return changed(connection, {name.replace("_", "."): value for name, value in settings.items()})

    return change


def _listener(name: str) -> Callable[[SecureKafkaServer, Connection], Connection]:
    def change(server: SecureKafkaServer, connection: Connection) -> Connection:
        host, _, port = (server.address if name == "PLAINTEXT" else server.address_of(name)).partition(":")
        return replace(connection, host=host, port=int(port))

    return change


def _certificate(kind: str) -> Callable[[SecureKafkaServer, Connection], Connection]:
    def change(server: SecureKafkaServer, connection: Connection) -> Connection:
        authority = Authority(server.certificates / "other") if kind == "foreign" else server.authority
        file = authority.issue(f"{kind}-client", address=None, expired=kind == "expired")
        names = {"ssl.certificate.location": str(file), "ssl.key.location": str(file.with_suffix(".key")), "ssl.key.password": None}
        return changed(connection, names)

    return change


REFUSALS = {
    "wrong password of PLAIN": Refusal("plain", _wrong_password, "Invalid username or password", "login and password"),
    "unknown user of PLAIN": Refusal("plain", _unknown_user, "Invalid username or password", "login and password"),
    "wrong password of SCRAM": Refusal("scram", _wrong_password, "invalid credentials", "login and password"),
    "unknown user of SCRAM": Refusal("scram", _unknown_user, "invalid credentials", "login and password"),
    "another mechanism": Refusal("scram", _extra(sasl_mechanism="SCRAM-SHA-256"), "PLAIN,SCRAM-SHA-512", "sasl.mechanism"),
    "unknown authority": Refusal("scram", _extra(ssl_ca_location=None), "certificate", "ssl.ca.location"),
    "another host": Refusal("mutual", _listener("ELSEWHERE"), "certificate", "host of the connection"),
    "expired certificate of the broker": Refusal("mutual", _listener("EXPIRED"), "certificate", "valid today"),
    "no certificate of the client": Refusal(
        "mutual", _extra(ssl_certificate_location=None, ssl_key_location=None, ssl_key_password=None), "alert", "ssl.certificate.location"
    ),
    "expired certificate of the client": Refusal("mutual", _certificate("expired"), "alert", "ssl.certificate.location"),
    "foreign certificate of the client": Refusal("mutual", _certificate("foreign"), "alert", "ssl.certificate.location"),
    "wrong password of the key": Refusal("mutual", _extra(ssl_key_password="wrong"), "ssl.key.location failed", "Correct the setting"),
    "missing file": Refusal("mutual", _extra(ssl_ca_location="/nonexistent.pem"), "ssl.ca.location failed", "Correct the setting"),
    "plaintext to TLS": Refusal("mutual", _extra(security_protocol="PLAINTEXT"), "close the connection", "security.protocol"),
    "SASL without TLS to TLS": Refusal("scram", _extra(security_protocol="SASL_PLAINTEXT"), "close the connection", "security.protocol"),
    "TLS to plaintext": Refusal("mutual", _listener("PLAINTEXT"), "in state SSL_HANDSHAKE", "security.protocol"),
    "SASL to TLS": Refusal("plain", _listener("ELSEWHERE"), "certificate", "ssl.ca.location"),
    "SASL to TLS without SASL": Refusal("plain", _extra(security_protocol="SSL"), "close the connection", "security.protocol"),
    "wrong secret of the client": Refusal("oauth", _wrong_password, "invalid_client", "id and secret"),
    "unknown client": Refusal("oauth", _unknown_user, "invalid_client", "id and secret"),
    "unknown authority of the endpoint": Refusal("oauth", _extra(https_ca_location=None), "token", "https.ca.location"),
    "no endpoint": Refusal("oauth", _extra(sasl_oauthbearer_token_endpoint_url=None), "token.endpoint.url", "Correct the setting"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_what_is_refused_is_named_and_shows_no_secret(
    server: SecureKafkaServer,
    topic: SecureTopic,
    refusal: Refusal,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    connection = refusal.change(server, secure_connection(server, refusal.mechanism))
    errors: list[HeadraceError] = []
    with pytest.raises(UpstreamError) as raised:
        probe_connection(connection)
    errors.append(raised.value)
    with pytest.raises(UpstreamError) as raised:
        async with reading(topic.producer(connection)) as stream:
            await stream.take(1)
    errors.append(raised.value)
    written = "".join([caplog.text, *capfd.readouterr(), *(f"{error} {error.hint}" for error in errors)])
    for error in errors:
        assert refusal.reason in str(error)
        assert refusal.hint in str(error.hint)
    _assert_no_secrets(server, connection, written)


@pytest.mark.parametrize("way", ["shard", "new protocol", "peek"])
async def test_each_way_to_read_names_a_wrong_password(server: SecureKafkaServer, topic: SecureTopic, way: str) -> None:
    connection = replace(secure_connection(server, "scram"), password="wrong")
    if way == "new protocol":
        connection = changed(connection, {"group.protocol": "consumer"})
    upstream = topic.upstream(connection, **({"shards": 2, "shard": 1} if way == "shard" else {}))

    async def read() -> None:
        if way == "peek":
            await peek_upstream(upstream, PeekRequest(1, None))
        else:
            async with reading(upstream.producer()) as stream:
                await stream.take(1)

    with pytest.raises(UpstreamError, match="invalid credentials"):
        await read()


async def test_a_refused_token_is_named(server: SecureKafkaServer, topic: SecureTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.tokens, "is_trusted", False)
    with pytest.raises(UpstreamError, match="invalid_token") as raised:
        async with reading(topic.producer(secure_connection(server, "oauth"))) as stream:
            await stream.take(1)
    assert "id and secret" in str(raised.value.hint)
    monkeypatch.undo()
    monkeypatch.setattr(server.tokens, "lifetime_seconds", -60.0)
    with pytest.raises(UpstreamError, match="token"):
        probe_connection(secure_connection(server, "oauth"))


def test_a_token_endpoint_that_does_not_answer_is_an_outage(server: SecureKafkaServer) -> None:
    url = f"https://127.0.0.1:{free_port()}/token"
    with pytest.raises(StreamError, match=r"[Cc]onnect") as raised:
        probe_connection(changed(secure_connection(server, "oauth"), {"sasl.oauthbearer.token.endpoint.url": url}))
    assert "token endpoint" in str(raised.value.hint)


async def test_reading_goes_on_after_a_token_has_expired(
    server: SecureKafkaServer, topic: SecureTopic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server.tokens, "lifetime_seconds", 10.0)
    before = len(server.tokens.issued)
    async with reading(topic.producer(secure_connection(server, "oauth"))) as stream:
        for first in range(0, 30, 10):
            await asyncio.to_thread(server.send, topic.name, numbers(first, first + 10))
            items = await stream.take(10)
            assert [raw.data for raw, _ in items] == numbers(first, first + 10)
            await stream.advance(items)
            known = server.tokens.issued[before:]
            ends = max(jwt.decode(token, options={"verify_signature": False})["exp"] for token in known)
            await until(partial(_is_past, ends + 1))
        assert topic.committed() == 30
    assert len(server.tokens.issued) - before >= 4
    assert not [token for token in server.tokens.issued if token in caplog.text]


async def test_a_stream_ends_when_its_password_is_changed(server: SecureKafkaServer, topic: SecureTopic) -> None:
    server.set_scram_password("before")
    connection = replace(secure_connection(server, "scram"), login=SCRAM_USER, password="before")
    server.send(topic.name, numbers(0, 10))
    try:
        async with reading(topic.producer(connection)) as stream:
            await stream.take(10)
            await asyncio.to_thread(server.set_scram_password, "after")
            await asyncio.to_thread(server.restart)
            with pytest.raises(UpstreamError, match="invalid credentials"):
                await stream.take(1)
        async with reading(topic.producer(replace(connection, password="after"))) as stream:
            assert [raw.data for raw, _ in await stream.take(10)] == numbers(0, 10)
    finally:
        server.set_scram_password(server.password)


def _is_past(moment: float) -> bool:
    return time.time() > moment


def _assert_no_secrets(server: SecureKafkaServer, connection: Connection, written: str) -> None:
    """Assert that a text has no password, secret, token or key."""
    hidden = [str(connection.password), server.password, server.tokens.client_secret, KEY_PASSWORD, "PRIVATE KEY", *server.tokens.issued]
    assert not [text for text in hidden if text in written]
