"""Azure Service Bus: a queue without sessions of the fake in `scripts/brokers/service_bus`."""

from __future__ import annotations

import json
import socket
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusClient
from bench.brokers.broker import Advanced, Broker, Send, value

from headrace import ServiceBus

SECONDS: Final = 60.0
POLICY: Final = ("RootManageSharedAccessKey", "headrace")
RECEIVED: Final = 200
"""Messages that the service sends ahead to the bare client, as many as to Headrace."""


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


CONTROL_PORT: Final = _free_port()


class Server(Broker):
    """The fake, which keeps all messages in memory."""

    server = "service-bus"
    environment: ClassVar[Mapping[str, str]] = {"SERVICE_BUS_CONTROL_PORT": str(CONTROL_PORT)}
    source = "a queue without sessions of the fake"
    count = "completed messages"
    ordered: ClassVar[bool] = False
    messages: ClassVar[int] = 20_000
    rate: ClassVar[int] = 500

    @property
    def connection(self) -> str:
        return f"servicebus://{':'.join(POLICY)}@{self.address}?emulator=true"

    def upstream(self, name: str) -> ServiceBus:
        return ServiceBus(name, connection="bench")

    def create(self, name: str) -> None:
        _request("PUT", f"queues/{name}", {"lock_seconds": 60})

    def drop(self, name: str) -> None:
        _request("DELETE", f"queues/{name}")

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        def send(numbers: Sequence[int]) -> None:
            _request("POST", f"queues/{name}/messages", [{"body": b64encode(value(number)).decode()} for number in numbers])

        yield send

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        yield lambda: [int(_request("GET", f"queues/{name}")["completed"])]

    @staticmethod
    def read(address: str, name: str) -> None:
        """Receive, and complete one message after the other, as the public part of the library can."""
        with (
            ServiceBusClient(address, AzureNamedKeyCredential(*POLICY), use_tls=False) as client,
            client.get_queue_receiver(name, prefetch_count=RECEIVED) as receiver,
        ):
            while True:
                for message in receiver.receive_messages(RECEIVED, max_wait_time=1):
                    receiver.complete_message(message)


def _request(method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{CONTROL_PORT}/{path}", method=method, data=data)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.loads(answer.read())
