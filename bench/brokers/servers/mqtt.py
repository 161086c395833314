"""MQTT: a session of Mosquitto with one subscription."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import paho.mqtt.client as library
from bench.brokers.broker import Advanced, Broker, Send, value
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from headrace import Mqtt

SECONDS: Final = 60.0
EXPIRY_SECONDS: Final = 86_400
RECEIVE_MAXIMUM: Final = 1_000
STORED: Final = "$SYS/broker/store/messages/count"
"""The number of messages that the server has. It is published when it has changed."""
TICK: Final = "$SYS/broker/uptime"
"""It is published at each interval, before the other topics."""


class Server(Broker):
    """Mosquitto with sessions in memory. The client id of a reader is the name of the source."""

    server = "mosquitto"
    environment: ClassVar[Mapping[str, str]] = {"MOSQUITTO_EXTRA": "sys_interval 1"}
    source = f"a session of Mosquitto with QoS 1, of which {RECEIVE_MAXIMUM:,} messages are in flight"
    count = "messages sent, less the stored ones, which the server reports with a delay of up to six seconds"
    ordered: ClassVar[bool] = False
    messages: ClassVar[int] = 100_000

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._sent: dict[str, int] = {}
        self._sender = _connect(address, "sender")

    @property
    def connection(self) -> str:
        return f"mqtt://{self.address}"

    def upstream(self, name: str) -> Mqtt:
        return Mqtt(f"{name}/#", client_id=name, connection="bench", receive_maximum=RECEIVE_MAXIMUM)

    def create(self, name: str) -> None:
        client, is_done = _connect(self.address, name, EXPIRY_SECONDS), threading.Event()
        client.on_subscribe = lambda *_: is_done.set()
        client.subscribe(f"{name}/#", options=SubscribeOptions(qos=1))
        if not is_done.wait(SECONDS):
            raise SystemExit("The server does not answer a subscription.")
        _disconnect(client)

    def drop(self, name: str) -> None:
        _disconnect(_connect(self.address, name))  # a session without an expiry ends with its connection

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        def send(numbers: Sequence[int]) -> None:
            for one in [self._sender.publish(f"{name}/0", value(number), qos=1) for number in numbers]:
                one.wait_for_publish(SECONDS)
            self._sent[name] = self._sent.get(name, 0) + len(numbers)

        yield send

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        progress, client = _Progress(lambda: self._sent.get(name, 0)), _connect(self.address, "observer")
        client.on_message = progress.receive
        client.subscribe([(topic, 0) for topic in (STORED, TICK)])
        if not progress.has_begun.wait(SECONDS):
            raise SystemExit("The server does not report how many messages it has.")
        yield lambda: [progress.advanced]
        _disconnect(client)

    @staticmethod
    def read(address: str, name: str) -> None:
        client = _client(name)
        client.on_message = lambda *_: None  # it acknowledges after the return
        _open(client, address, EXPIRY_SECONDS)
        client.loop_forever()


class _Progress:
    """Counts the messages that the server does not have any more.

    At a tick, the last number of stored messages is that of the tick before. It includes what was sent before the tick before that arrived.
    """

    def __init__(self, sent: Callable[[], int]) -> None:
        self.advanced = 0
        self.has_begun = threading.Event()
        self._sent = sent
        self._sent_at_ticks: deque[int] = deque(maxlen=3)
        self._stored = 0
        self._others = 0  # messages that the server retains itself

    def receive(self, _client: Any, _data: Any, message: Any) -> None:
        """Receive a report, in the thread of the client."""
        if message.topic == STORED:
            self._stored = int(message.payload)
            return
        self._sent_at_ticks.append(self._sent())
        if len(self._sent_at_ticks) < 3:
            self._others = self._stored - self._sent()
        else:
            self.advanced = max(self.advanced, self._sent_at_ticks[0] - max(0, self._stored - self._others))
            self.has_begun.set()


def _connect(address: str, client_id: str, expiry: int = 0) -> Any:
    """Return a connected client with a thread."""
    client, is_connected = _client(client_id), threading.Event()
    client.max_queued_messages_set(0)
    client.max_inflight_messages_set(RECEIVE_MAXIMUM)
    client.on_connect = lambda *_: is_connected.set()
    _open(client, address, expiry)
    client.loop_start()
    if not is_connected.wait(SECONDS):
        raise SystemExit("The server does not answer.")
    return client


def _disconnect(client: Any) -> None:
    client.disconnect()
    client.loop_stop()


def _client(client_id: str) -> Any:
    return library.Client(library.CallbackAPIVersion.VERSION2, client_id, protocol=library.MQTTv5)


def _open(client: Any, address: str, expiry: int) -> None:
    properties: Any = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = expiry
    properties.ReceiveMaximum = RECEIVE_MAXIMUM
    host, _, port = address.rpartition(":")
    client.connect(host, int(port), clean_start=False, properties=properties)
