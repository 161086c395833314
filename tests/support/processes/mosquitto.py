"""Mosquitto, a real MQTT server on loopback, for tests with the mark `brokers`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.processes.broker_server import SECONDS, BrokerServer, require_server, skip_or_fail
from support.processes.certificates import Authority
from support.processes.shared_servers import shared_server

PROGRAMS = "/usr/sbin"


class MosquittoServer(BrokerServer):
    """One server. `extra` are further lines of its configuration. With `tls`, it has only a TLS port."""

    def __init__(self, extra: str = "", *, tls: Path | None = None, login: tuple[str, str] | None = None) -> None:
        self._login = login
        self._tls = tls
        self.client: Any = None
        super().__init__("mosquitto", MOSQUITTO_EXTRA=extra, MOSQUITTO_TLS="" if tls is None else str(tls))

    def start(self) -> str:
        """Start it, and connect a client that publishes."""
        address = super().start()
        self.client = self.connect("", address=address)
        return address

    def kill(self) -> None:
        """End it with SIGKILL once it has written its state, as it does by itself at intervals only."""
        end_client(self.client)
        state = self._folder / "mosquitto-0" / "db" / "mosquitto.db"
        state.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        limit = time.monotonic() + SECONDS
        while not state.exists():  # it is renamed when it is complete
            assert time.monotonic() < limit, "no state is written"
            time.sleep(0.02)
        super().kill()

    def restart(self) -> None:
        """Stop and start it in order."""
        end_client(self.client)
        super()._run("stop")
        self.start()

    def close(self) -> None:
        end_client(self.client)
        super().close()

    @property
    def pid(self) -> int:
        """The process of the server."""
        return int((self._folder / "mosquitto-0" / "pid").read_text())

    def reload(self) -> None:
        """Have it read its files of passwords and permissions again."""
        os.kill(self.pid, signal.SIGHUP)

    def connect(
        self, client_id: str, *, expiry: int = 0, address: str | None = None, on_message: Callable[[Any, Any, Any], None] | None = None
    ) -> Any:
        """Return a connected client of another program."""
        from paho.mqtt import client as library
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        client = library.Client(library.CallbackAPIVersion.VERSION2, client_id, protocol=library.MQTTv5)
        client.max_queued_messages_set(0)
        if self._login is not None:
            client.username_pw_set(*self._login)
        if self._tls is not None:
            client.tls_set(str(self._tls / "ca.pem"))
        connected = threading.Event()
        client.on_connect = lambda *_: connected.set()
        client.on_message = on_message
        properties: Any = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = expiry
        host, _, port = (address or self.address).partition(":")
        client.connect(host, int(port), clean_start=False, properties=properties)
        client.loop_start()
        assert connected.wait(SECONDS)
        return client

    def subscribe(self, client_id: str, filters: Sequence[str], qos: int = 1) -> None:
        """Begin a session with subscriptions, and leave it."""
        client = self.connect(client_id, expiry=86_400)
        done = threading.Event()
        client.on_subscribe = lambda *_: done.set()
        client.subscribe([(one, qos) for one in filters])
        assert done.wait(SECONDS)
        end_client(client)

    def end_session(self, client_id: str) -> None:
        """Delete a session."""
        end_client(self.connect(client_id))  # a session without an expiry ends with its connection

    def send(self, topic: str, payloads: Sequence[bytes], *, qos: int = 1, retain: bool = False, **properties: Any) -> None:
        """Publish messages, and wait until the server has them. `properties` are named as in the client."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        options: Any = Properties(PacketTypes.PUBLISH)
        for name, value in properties.items():
            setattr(options, name, value)
        sent = [self.client.publish(topic, payload, qos, retain, options) for payload in payloads]
        for one in sent:
            one.wait_for_publish(SECONDS)
            assert one.is_published()


def end_client(client: Any) -> None:
    """Disconnect a client of another program, and end its thread."""
    client.disconnect()
    client.loop_stop()


def set_passwords(path: Path, users: Mapping[str, str]) -> None:
    """Write a file of passwords as the server reads it."""
    path.write_text("".join(f"{user}:{password}\n" for user, password in users.items()))
    path.chmod(0o600)
    subprocess.run(["mosquitto_passwd", "-U", str(path)], check=True, timeout=SECONDS, capture_output=True)


def new_authority() -> Path:
    """Return a new folder with an authority, and with the certificate and key of a server on 127.0.0.1."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-mosquitto-tls-"))
    Authority(folder).issue("server")
    return folder


def require() -> None:
    """Skip the test, or fail it in CI, where the server or the client library is not installed."""
    require_server("mosquitto", library="paho")
    if shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{PROGRAMS}") is None:
        skip_or_fail("mosquitto is not installed: run `make setup-brokers`.")


@shared_server
def shared() -> MosquittoServer:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require()
    return MosquittoServer()
