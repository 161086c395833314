"""Real NATS servers with JetStream on loopback, in the versions of Go's module proxy and of Debian, for tests with the mark `brokers`.

`make setup-brokers` installs them. A server ends with the process that started it, however that ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeVar

from support.processes.broker_server import SECONDS, BrokerServer, require_server, skip_or_fail
from support.processes.shared_servers import shared_server

INSTALLED = "nats-2.15.2/nats-server"

Version = Literal["go", "package"]
T = TypeVar("T")


class NatsServer(BrokerServer):
    """One server. Its address stays the same over `kill` and `start`. `extra` are further lines of its configuration."""

    def __init__(self, version: Version, extra: str = "", **options: Any) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nats of tests", daemon=True)
        self._thread.start()
        self._client: Any = None
        self._takers: list[Any] = []
        self.is_closed = False
        super().__init__("nats", NATS_FROM=version, NATS_EXTRA=extra)

    def start(self) -> str:
        address = super().start()
        self._client = self.call(_connect(address, self._options))
        return address

    def kill(self) -> None:
        super().kill()
        self.call(self._client.close())

    def reload(self, extra: str) -> None:
        """Replace the further lines of its configuration while it runs."""
        folder = self._folder / "nats-0"
        configuration = folder / "nats.conf"
        configuration.write_text(configuration.read_text().replace(self._environment["NATS_EXTRA"], extra))
        self._environment["NATS_EXTRA"] = extra
        os.kill(int((folder / "pid").read_text()), signal.SIGHUP)

    def close(self) -> None:
        self.is_closed = True
        self.call(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()
        super().close()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine, which runs in the loop of this server's client."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(SECONDS)

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self.address.rpartition(":")[2])

    def api(self, subject: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer of JetStream's API."""
        request = self._client.request(f"$JS.API.{subject}", b"" if body is None else json.dumps(body).encode(), timeout=10)
        answer: dict[str, Any] = json.loads(self.call(request).data)
        return answer

    def create_stream(self, **config: Any) -> str:
        """Create a stream of its own for all subjects below its name, and return the name."""
        name = config.pop("name", None) or f"s{secrets.token_hex(6)}"
        answer = self.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": "file"} | config)
        assert "error" not in answer, answer["error"]
        return str(name)

    def delete_stream(self, name: str) -> None:
        """Delete a stream."""
        self.api(f"STREAM.DELETE.{name}")

    def send(self, subject: str, values: Sequence[bytes], headers: Mapping[str, str] | None = None) -> None:
        """Send messages in their order, and wait until the server has stored them."""
        self.call(self._send(subject, values, None if headers is None else dict(headers)))

    def publish_raw(self, data: bytes) -> None:
        """Send bytes of the protocol on a connection of their own, and wait until the server has read them."""
        self.call(_raw(self.address, data))

    async def take(self, stream: str, consumer: str) -> None:
        """Ask for messages of a consumer on a connection of its own, and acknowledge none."""
        taker = await _connect(self.address, self._options)
        self._takers.append(taker)
        inbox = taker.new_inbox()
        await taker.subscribe(inbox)
        for _ in range(3):
            await taker.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", b'{"batch":2,"expires":30000000000}', reply=inbox)
        await taker.flush()

    async def answer(self, subject: str, answer: bytes) -> None:
        """Answer each message of a subject, on a connection of its own, until `end_takers`."""
        taker = await _connect(self.address, self._options)
        self._takers.append(taker)

        async def respond(message: Any) -> None:
            await message.respond(answer)

        await taker.subscribe(subject, cb=respond)
        await taker.flush()

    async def end_takers(self) -> None:
        """Close the connections of `take` and `answer`."""
        while self._takers:
            await self._takers.pop().close()

    async def _send(self, subject: str, values: Sequence[bytes], headers: dict[str, str] | None) -> None:
        for start in range(0, len(values), 200):
            part = values[start : start + 200]
            answers = await asyncio.gather(*(self._client.request(subject, value, timeout=30, headers=headers) for value in part))
            assert all(b'"seq"' in answer.data for answer in answers), [answer.data for answer in answers][:3]


async def _connect(address: str, options: Mapping[str, Any]) -> Any:
    from nats.aio.client import Client

    client = Client()
    await client.connect([f"nats://{address}"], allow_reconnect=False, max_reconnect_attempts=1, **options)
    return client


async def _raw(address: str, data: bytes) -> None:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n' + data + b"PING\r\n")
    while b"PONG" not in await reader.readline():
        pass
    writer.close()
    await writer.wait_closed()


def require(version: Version) -> None:
    """Skip the test, or fail it in CI, where the server or the client library is not installed."""
    require_server("nats", INSTALLED if version == "go" else None, library="nats")
    if version == "package" and shutil.which("nats-server") is None:
        skip_or_fail("Debian's nats-server is not installed: run `make setup-brokers`.")


@shared_server
def shared(version: Version) -> NatsServer:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require(version)
    return NatsServer(version)
