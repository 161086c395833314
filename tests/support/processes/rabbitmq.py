"""RabbitMQ from the system's packages, on loopback, for tests with the mark `brokers`."""

from __future__ import annotations

import asyncio
import base64
import secrets
import tempfile
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from support.processes.broker_server import SECONDS, BrokerServer, skip_or_fail
from support.processes.certificates import Authority
from support.processes.ports import free_port
from support.processes.shared_servers import shared_server

INSTALLED = Path("/usr/lib/rabbitmq/lib")
MAX_UNCONFIRMED = 500


class RabbitServer(BrokerServer):
    """One server. `settings` are variables of its script."""

    def __init__(self, **settings: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix="headrace-rabbitmq-"))
        tls_port = free_port()
        self.tls_address = f"127.0.0.1:{tls_port}"
        authority = Authority(folder / "tls")
        authority.issue("server")
        self.authority = authority.certificate
        tls = {"RABBITMQ_TLS_FOLDER": str(self.authority.parent), "RABBITMQ_TLS_PORT": str(tls_port)}
        self._queues: frozenset[str] = frozenset()
        super().__init__("rabbitmq", folder=folder, **tls | settings)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="sender of RabbitMQ", daemon=True).start()
        self._connection: Any = None
        self._channel: Any = None
        port = (self._folder / "rabbitmq-0" / "management_port").read_text().strip()
        self.management = f"http://127.0.0.1:{port}"
        self.admin = httpx.Client(
            base_url=f"{self.management}/api", auth=("guest", "guest"), timeout=SECONDS, trust_env=False, verify=False
        )

    @property
    def pid(self) -> int:
        """The id of the node's process."""
        return int((self._folder / "rabbitmq-0" / "node.pid").read_text())

    def start(self) -> str:
        """Start it, and wait until it has recovered the queues that it had when it was killed. It accepts connections before."""
        address = super().start()
        limit = time.monotonic() + SECONDS
        while self._queues and (missing := self._queues - self._running_queues()):
            assert time.monotonic() < limit, f"not recovered: {sorted(missing)}"
            time.sleep(0.05)
        self._queues = frozenset()
        return address

    def kill(self) -> None:
        """End it with SIGKILL, after its definitions of queues are on the disk: it confirms them some seconds before."""
        self._queues = self._running_queues()
        self._run("sync")
        super().kill()

    def close(self) -> None:
        self.admin.close()
        if self._connection is not None:
            self._call(self._connection.close())
        super().close()

    def create_queue(self, kind: str = "classic", vhost: str = "/", **arguments: Any) -> str:
        """Create a durable queue of its own, and return its name. Underscores in names of arguments are dashes."""
        name = f"queue-{secrets.token_hex(6)}"
        self.declare(name, kind, vhost, **arguments)
        return name

    def declare(self, name: str, kind: str = "classic", vhost: str = "/", **arguments: Any) -> None:
        """Create a durable queue."""
        named = {"x-queue-type": kind} | {name.replace("_", "-"): value for name, value in arguments.items()}
        self._request("PUT", f"/queues/{quote(vhost, safe='')}/{name}", {"durable": True, "arguments": named})

    def delete_queue(self, name: str, vhost: str = "/") -> None:
        """Delete a queue, if it exists."""
        assert self.admin.delete(f"/queues/{quote(vhost, safe='')}/{name}").status_code in (204, 404)

    def create_user(self, name: str, password: str, read: str, vhost: str = "/", *, configure: str = "", write: str = "") -> None:
        """Create a user who may read the queues whose names match a pattern, and nothing else unless it is given."""
        self._request("PUT", f"/users/{name}", {"password": password, "tags": ""})
        permissions = {"configure": configure, "write": write, "read": read}
        self._request("PUT", f"/permissions/{quote(vhost, safe='')}/{name}", permissions)

    def exchanges(self, queue: str) -> list[str]:
        """Return the names of the exchanges that are bound to a queue, but the default one."""
        return [one["source"] for one in self._request("GET", f"/queues/%2F/{queue}/bindings") if one["source"]]

    def create_vhost(self, name: str) -> None:
        """Create a virtual host that guest may use."""
        self._request("PUT", f"/vhosts/{quote(name, safe='')}", {})

    def create_exchange(self, name: str, queue: str) -> None:
        """Create a fanout exchange with a queue bound to it."""
        self._request("PUT", f"/exchanges/%2F/{name}", {"type": "fanout", "durable": True})
        self._request("POST", f"/bindings/%2F/e/{name}/q/{queue}", {})

    def send(self, queue: str, bodies: Sequence[bytes], **properties: Any) -> None:
        """Send persistent messages in their order, each with an id of its own, and wait until the server has stored them."""
        self._call(self._send(queue, bodies, properties))

    def send_without_id(self, queue: str, body: bytes, headers: Mapping[str, Any] | None = None) -> None:
        """Send a persistent message without an id, which the client library always sets."""
        message = {
            "routing_key": queue,
            "payload": base64.b64encode(body).decode(),
            "payload_encoding": "base64",
            "properties": {"delivery_mode": 2, "headers": dict(headers or {})},
        }
        assert self._request("POST", "/exchanges/%2F/amq.default/publish", message) == {"routed": True}

    def take(self, queue: str) -> list[tuple[bytes, Any]]:
        """Remove all messages of a queue, and return their bodies and properties."""
        return list(self._call(self._take(queue)))

    def last_message(self, queue: str) -> str | None:
        """Return the body of the last message of a short queue, or None without one. The messages stay in the queue."""
        if self.admin.get(f"/queues/%2F/{queue}").status_code == 404:
            return None
        asked = {"count": 100, "ackmode": "ack_requeue_true", "encoding": "auto"}
        messages = self._request("POST", f"/queues/%2F/{queue}/get", asked)
        return str(messages[-1]["payload"]) if messages else None

    def send_undecodable(self, exchange: str) -> None:
        """Send a message whose routing key is not UTF-8 to a fanout exchange."""
        self._call(self._send_undecodable(exchange))

    def ready(self, queue: str, vhost: str = "/") -> int:
        """Return the number of messages that no reader holds."""
        return self._call(self._declared(queue)) if vhost == "/" else int(self.details(queue, vhost).get("messages_ready", 0))

    def details(self, queue: str, vhost: str = "/") -> dict[str, Any]:
        """Return what the management API says of a queue. Its counts are up to some seconds old."""
        return dict(self._request("GET", f"/queues/{quote(vhost, safe='')}/{queue}"))

    def close_connections(self) -> int:
        """Close the connections of Headrace by force, and return their number."""
        named = [one for one in self._request("GET", "/connections") if one.get("user_provided_name") == "headrace"]
        for one in named:
            self.admin.delete(f"/connections/{quote(one['name'], safe='')}")
        return len(named)

    def _running_queues(self) -> frozenset[str]:
        """Return the names of the queues that a client can use and that outlive a restart."""
        try:
            queues = self._request("GET", "/queues")
        except httpx.TransportError:
            return frozenset()
        lasting = (queue for queue in queues if queue["durable"] and not queue["exclusive"])
        return frozenset(f"{queue['vhost']} {queue['name']}" for queue in lasting if queue.get("state", "running") == "running")

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        response = self.admin.request(method, path, json=body)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        return response.json() if response.content else None

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _sending(self) -> Any:
        import aiormq

        if self._connection is None or self._connection.is_closed:
            self._connection = await aiormq.connect(f"amqp://guest:guest@{self.address}/")
            self._channel = None
        if self._channel is None or self._channel.is_closed:
            self._channel = await self._connection.channel()
        return self._channel

    async def _send(self, queue: str, bodies: Sequence[bytes], properties: Mapping[str, Any]) -> None:
        from pamqp.commands import Basic

        channel = await self._sending()
        for start in range(0, len(bodies), MAX_UNCONFIRMED):
            await asyncio.gather(
                *(
                    channel.basic_publish(
                        body, routing_key=queue, mandatory=True, properties=Basic.Properties(delivery_mode=2, **properties)
                    )
                    for body in bodies[start : start + MAX_UNCONFIRMED]
                )
            )

    async def _take(self, queue: str) -> list[tuple[bytes, Any]]:
        from pamqp.commands import Basic

        channel = await self._sending()
        messages: list[tuple[bytes, Any]] = []
        while not isinstance((message := await channel.basic_get(queue, no_ack=True)).delivery, Basic.GetEmpty):
            messages.append((bytes(message.body), message.header.properties))
        return messages

    async def _send_undecodable(self, exchange: str) -> None:
        import pamqp.frame
        from aiormq.abc import ChannelFrame
        from pamqp import body, commands, header

        channel, placeholder = await self._sending(), "zz"
        publish = commands.Basic.Publish(exchange=exchange, routing_key=placeholder)
        frames = (publish, header.ContentHeader(body_size=1, properties=commands.Basic.Properties(delivery_mode=2)), body.ContentBody(b"1"))
        payload = b"".join(pamqp.frame.marshal(frame, channel.number) for frame in frames)
        await channel.write_queue.put(ChannelFrame(payload.replace(placeholder.encode(), b"\xff\xfe"), should_close=False))
        # The number of the next confirmation would be wrong.
        await channel.queue_declare("", exclusive=True)
        await channel.close()

    async def _declared(self, queue: str) -> int:
        channel = await self._sending()
        return int((await channel.queue_declare(queue, passive=True)).message_count)


def require() -> None:
    """Skip the test, or fail it in CI, where the server or the client library is not installed."""
    if find_spec("aiormq") is None:
        skip_or_fail("aiormq is not installed: run `make setup-dev`.")
    if not list(INSTALLED.glob("rabbitmq_server-*")):
        skip_or_fail("RabbitMQ is not installed: run `make setup-brokers`.")


@shared_server
def shared() -> RabbitServer:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require()
    return RabbitServer()
