"""TLS, tokens and permissions, on a server of their own."""

from __future__ import annotations

import asyncio
import atexit
import base64
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.sources.peeks.peek import PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from headrace.triggers.secrets import get_connection
from support.processes.certificates import Authority
from support.processes.deployment import until
from support.processes.ports import free_port
from support.processes.pulsar import PulsarServer, require
from support.processes.shared_servers import shared_server
from support.sources.kit import PATIENCE
from support.sources.pulsar import PulsarTopic
from support.sources.reading import numbers, numbers_of

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("pulsar-security"), pytest.mark.timeout(2 * PATIENCE)]

NAMESPACE = "public/default"


class Secured(NamedTuple):
    """A server that needs TLS or not, and always a token."""

    server: PulsarServer
    authority: Authority
    key: bytes
    tls_port: int
    web_tls_port: int

    def close(self) -> None:
        """End the server."""
        self.server.close()

    def token(self, role: str, key: bytes | None = None, *, expires_at: int | None = None) -> str:
        """Return a token of a role."""
        return jwt.encode({"sub": role} | ({} if expires_at is None else {"exp": expires_at}), key or self.key, algorithm="HS256")

    def url(self, token: str, *, cafile: Path | None = None) -> str:
        """Return a connection with TLS."""
        admin = f"https://127.0.0.1:{self.web_tls_port}"
        return f"pulsar+ssl://127.0.0.1:{self.tls_port}?admin_url={admin}&token={token}&cafile={cafile or self.authority.certificate}"


def has_namespace(server: PulsarServer) -> bool:
    """Return whether the server has created its namespace, after it listens."""
    try:
        server.admin("GET", f"namespaces/{NAMESPACE}/permissions")
    except AssertionError:
        return False
    return True


@shared_server
def secured() -> Secured:
    require()
    folder = Path(tempfile.mkdtemp(prefix="headrace-pulsar-tls-"))
    atexit.register(shutil.rmtree, folder)
    authority, key = Authority(folder), secrets.token_bytes(32)
    certificate = authority.issue("server")
    admin = jwt.encode({"sub": "admin"}, key, algorithm="HS256")
    tls_port, web_tls_port = free_port(), free_port()
    properties = folder / "pulsar.properties"
    settings: dict[str, Any] = {
        "brokerServicePortTls": tls_port,
        "webServicePortTls": web_tls_port,
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": certificate.with_suffix(".key"),
        "tlsTrustCertsFilePath": authority.certificate,
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(key).decode()}",
        "authenticationRefreshCheckSeconds": 1,
        "superUserRoles": "admin",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{admin}",
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    server = PulsarServer(properties, token=admin)
    until(lambda: has_namespace(server), "the server has created its namespace")
    server.admin("POST", f"namespaces/{NAMESPACE}/permissions/reader", ["consume"])
    return Secured(server, authority, key, tls_port, web_tls_port)


@pytest.fixture
def topic() -> Iterator[PulsarTopic]:
    """Return a topic of the secured server, with the connection of a role that may only consume."""
    topic = PulsarTopic(secured().server, 2)
    topic.set_connection(secured().url(secured().token("reader")))
    yield topic
    topic.close()


async def test_a_role_that_may_consume_reads_with_tls(topic: PulsarTopic) -> None:
    topic.send(numbers(0, 5))
    async with reading(topic.producer(start=datetime.fromtimestamp(1, UTC))) as stream:
        items = await stream.take(5)
        await stream.advance(items[:3])
    async with reading(topic.producer()) as stream:
        assert numbers_of(await stream.take(2)) == [3, 4]
    assert (await peek_upstream(topic.upstream(), PeekRequest(10))).messages
    text = await asyncio.to_thread(lambda: probe_connection(get_connection(topic.connection)))
    assert text.startswith("Pulsar 4.")


@pytest.mark.parametrize(
    ("role", "is_forged", "reason", "hint"),
    [("reader", True, "answers 401", "Correct the token"), ("stranger", False, "answers 40[13]", "consume on the namespace")],
)
async def test_a_wrong_token_and_a_missing_permission_say_what_to_do(
    topic: PulsarTopic, role: str, is_forged: bool, reason: str, hint: str
) -> None:
    token = secured().token(role, secrets.token_bytes(32) if is_forged else None)
    topic.set_connection(secured().url(token))
    with pytest.raises(UpstreamError, match=reason) as refused:
        async with reading(topic.producer()) as stream:
            await stream.take(1)
    assert hint in str(refused.value.hint)
    assert token not in str(refused.value)
    if is_forged:
        with pytest.raises(UpstreamError, match=r"refuses the credentials|answers 401"):
            await asyncio.to_thread(lambda: probe_connection(get_connection(topic.connection)))


async def test_a_token_that_expires_while_it_is_used_ends_the_stream(topic: PulsarTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.pulsar.reader.WATCH_SECONDS", 0.2)
    topic.set_connection(secured().url(secured().token("reader", expires_at=int(time.time()) + 3)))
    topic.send(numbers(0, 5))
    async with reading(topic.producer()) as stream:
        await stream.advance((await stream.take(5))[:3])
        with pytest.raises(UpstreamError, match="answers 401") as expired:
            await stream.take(1)
    assert "Correct the token" in str(expired.value.hint)
    topic.set_connection(secured().url(secured().token("reader")))
    async with reading(topic.producer()) as stream:
        assert numbers_of(await stream.take(2)) == [3, 4]


async def test_a_certificate_of_another_authority_is_refused(topic: PulsarTopic, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other").certificate
    topic.set_connection(secured().url(secured().token("reader"), cafile=other))
    with pytest.raises(StreamError, match="certificate"):
        async with reading(topic.producer()) as stream:
            await stream.take(1)
