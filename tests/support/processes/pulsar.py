"""Real servers of Apache Pulsar on loopback, for tests with the mark `brokers`.

`make setup-brokers` installs them. A server ends with the process that started it, however that ends.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from support.processes.broker_server import SECONDS, BrokerServer, require_server
from support.processes.ports import free_port
from support.processes.proxy import Proxy
from support.processes.shared_servers import shared_server

INSTALLED = "pulsar-4.2.4/jars"
NAMESPACE = "public/default"
SEND_MS = 30_000


class PulsarServer(BrokerServer):
    """One server. Its addresses stay the same over `kill` and `start`. `properties` is a file with further properties of the server."""

    def __init__(self, properties: Path | None = None, *, folder: Path | None = None, token: str | None = None, **settings: str) -> None:
        self._token = token
        self._client: Any = None
        self._is_closed = False
        self._producers: dict[tuple[Any, ...], Any] = {}
        super().__init__("pulsar", folder=folder, PULSAR_PROPERTIES="" if properties is None else str(properties), **settings)

    @property
    def port(self) -> int:
        """The port of the broker."""
        return int(self.address.rpartition(":")[2])

    @property
    def web_port(self) -> int:
        """The port of the admin API."""
        return int((self._folder / "pulsar-0" / "web-port").read_text())

    @property
    def url(self) -> str:
        """The value of a connection to it."""
        return f"pulsar://{self.address}?admin_url=http://127.0.0.1:{self.web_port}"

    def close(self) -> None:
        self._is_closed = True
        if self._client is not None:
            self._client.close()
        super().close()

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer of the admin API, which must be a success."""
        headers = {"Content-Type": "application/json"} | ({} if self._token is None else {"Authorization": f"Bearer {self._token}"})
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.web_port}/admin/v2/{path}",
            method=method,
            headers=headers,
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                data = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from None
        return json.loads(data) if data else None

    def create_topic(self, partitions: int = 0, *, name: str | None = None, namespace: str = NAMESPACE) -> str:
        """Create a topic, by default of a name of its own without partitions, and return its full name."""
        path = f"persistent/{namespace}/{name or f't{secrets.token_hex(6)}'}"
        if partitions:
            self.admin("PUT", f"{path}/partitions", partitions)
        else:
            self.admin("PUT", path)
        return path.replace("persistent/", "persistent://", 1)

    def delete_topic(self, topic: str, *, partitioned: bool) -> None:
        """Delete a topic with its subscriptions."""
        self.admin("DELETE", f"{path_of(topic)}{'/partitions' if partitioned else ''}?force=true")

    def stats(self, topic: str) -> dict[str, Any]:
        """Return the statistics of a topic without partitions, or of a partition."""
        found: dict[str, Any] = self.admin("GET", f"{path_of(topic)}/stats")
        return found

    def send(self, topic: str, values: Sequence[bytes | None], *, batch: int = 100, chunked: bool = False, **fields: Any) -> None:
        """Send messages in their order, in batches of up to `batch`, and wait until the server has stored them. None has no value."""
        producer = self._producer(topic, batch, chunked=chunked)
        failures: list[Any] = []
        left = threading.Semaphore(0)

        def sent(result: Any, _: Any) -> None:
            if result.name != "Ok":
                failures.append(result)
            left.release()

        for value in values:
            producer._producer.send_async(_message(value, fields), sent)
        producer.flush()
        for _ in values:
            assert left.acquire(timeout=SECONDS), "the server has not confirmed all messages"
        assert not failures, failures

    def read(self, topic: str) -> list[Any]:
        """Return all messages of a topic without partitions, as the client has them."""
        import pulsar

        reader = self._opened().create_reader(topic, pulsar.MessageId.earliest)
        messages: list[Any] = []
        while reader.has_message_available():
            messages.append(reader.read_next(int(SECONDS * 1_000)))
        reader.close()
        return messages

    def _opened(self) -> Any:
        import pulsar

        if self._client is None:
            options: dict[str, Any] = {} if self._token is None else {"authentication": pulsar.AuthenticationToken(self._token)}
            quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
            self._client = pulsar.Client(f"pulsar://{self.address}", logger=quiet, **options)
        return self._client

    def _producer(self, topic: str, batch: int, *, chunked: bool) -> Any:
        key = (topic, batch, chunked)
        if key not in self._producers:
            self._producers[key] = self._opened().create_producer(
                topic,
                batching_enabled=batch > 1 and not chunked,
                batching_max_messages=max(2, batch),
                batching_max_publish_delay_ms=10,
                chunking_enabled=chunked,
                max_pending_messages=0,
                send_timeout_millis=SEND_MS,
            )
        return self._producers[key]

    def forget(self, topic: str) -> None:
        """Close the producers of a topic."""
        for key in [one for one in self._producers if one[0] == topic]:
            producer = self._producers.pop(key)
            if not self._is_closed:
                producer.close()


def _message(value: bytes | None, fields: Mapping[str, Any]) -> Any:
    import _pulsar

    builder = _pulsar.MessageBuilder()
    if value is None:
        builder.set_null_value()
    else:
        builder.content(value)
    for name, content in fields.items():
        if name == "properties":
            for key, text in content.items():
                builder.property(key, text)
        else:
            getattr(builder, name)(content)
    return builder.build()


def path_of(topic: str) -> str:
    """Return the path of a topic in the admin API."""
    return topic.replace("://", "/", 1)


class ProxiedPulsar(NamedTuple):
    """A server that tells the clients of one listener the address of the proxy."""

    server: PulsarServer
    proxy: Proxy

    def close(self) -> None:
        """End both."""
        self.server.close()
        self.proxy.close()

    @property
    def url(self) -> str:
        """The value of a connection whose broker is reached through the proxy, and whose admin API is reached directly."""
        return self.url_at(self.proxy.address)

    def url_at(self, address: str) -> str:
        """Return the same for another address of the broker."""
        return f"pulsar://{address}?listener_name=proxied&admin_url=http://127.0.0.1:{self.server.web_port}"


@shared_server
def shared_proxied() -> ProxiedPulsar:
    """Return the server behind a proxy that all tests of this process share, and may kill. Skip the test where it is not installed."""
    require()
    proxy = Proxy(free_port())
    folder = Path(tempfile.mkdtemp(prefix="headrace-pulsar-"))
    (folder / "pulsar-0").mkdir()
    (folder / "pulsar-0" / "port").write_text(str(proxy.target))
    server = PulsarServer(folder=folder, PULSAR_ADVERTISED=proxy.address)
    return ProxiedPulsar(server, proxy)


def require() -> None:
    """Skip the test, or fail it in CI, where the server or the client library is not installed."""
    require_server("Pulsar", INSTALLED, library="pulsar", program="java")


@shared_server
def shared() -> PulsarServer:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require()
    return PulsarServer()
