"""The fake of Azure Service Bus on loopback, for tests with the mark `brokers`. It keeps nothing when it ends."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from support.processes.broker_server import SECONDS, BrokerServer, require_server
from support.processes.shared_servers import shared_server

POLICY = "RootManageSharedAccessKey:headrace"
MESSAGES_PER_REQUEST = 1_000


class ServiceBusServer(BrokerServer):
    """One server. Its addresses stay the same over `kill` and `start`. Paths are those of its control API: `queues/orders`."""

    def __init__(self) -> None:
        super().__init__("service-bus")

    @property
    def url(self) -> str:
        """The value of a connection to it."""
        return url_at(self.address)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer of the control API, which must be a success."""
        port = (self._folder / "service-bus-0" / "control-port").read_text().strip()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/{path}", method=method, data=None if body is None else json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            data = answer.read()
        return json.loads(data) if data else None

    def send(self, path: str, messages: Sequence[bytes], **fields: Any) -> None:
        """Send messages to a queue or topic, each with these fields."""
        for start in range(0, len(messages), MESSAGES_PER_REQUEST):
            batch = [{"body": b64encode(data).decode()} | fields for data in messages[start : start + MESSAGES_PER_REQUEST]]
            self.request("POST", f"{path}/messages", batch)

    def messages(self, path: str) -> list[Mapping[str, Any]]:
        """Return the messages that a queue or subscription has, with their bodies as bytes."""
        return [{**one, "body": b64decode(one["body"])} for one in self.request("GET", f"{path}/messages")]

    def exists(self, path: str) -> bool:
        """Return whether there is a queue, topic or subscription."""
        try:
            self.request("GET", path)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return False
        return True


def url_at(address: str) -> str:
    """Return the value of a connection to an address."""
    return f"servicebus://{POLICY}@{address}?emulator=true"


def require() -> None:
    """Skip the test, or fail it in CI, where the fake or the client library is not installed."""
    require_server("service-bus", "service-bus-0.40.0/ready", library="azure.servicebus")


@shared_server
def shared() -> ServiceBusServer:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require()
    return ServiceBusServer()
