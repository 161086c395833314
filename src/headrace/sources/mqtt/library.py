"""The client library paho-mqtt, imported when a stream opens, and clients that connect as Headrace needs it."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.connections.client_library import import_library
from headrace.sources.connections.tls import client_context
from headrace.sources.mqtt.publish_packet import parse_publish
from headrace.sources.mqtt.settings import Address

CONNECT_SECONDS: Final = 5.0
MAX_QOS: Final = 1


def new_client(address: Address, client_id: str) -> Any:
    """Return a client that is not connected. It acknowledges nothing by itself, and does not reconnect. Messages are `ReceivedMessage`s.

    Raises:
        UpstreamError: The client library is not installed, or a file of certificates cannot be read.
    """
    library = import_library("MQTT cannot be read: its client library", "mqtt", "paho.mqtt.client")
    client = _client_type(library)(
        library.CallbackAPIVersion.VERSION2,
        client_id,
        protocol=library.MQTTv5,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    client.connect_timeout = CONNECT_SECONDS
    if address.login is not None:
        client.username_pw_set(address.login, address.password)
    context = client_context(address.tls)
    if context is not None:
        context.sslsocket_class = _TlsSocket
        client.tls_set_context(context)
    return client


@cache
def _client_type(library: Any) -> Any:
    """Return the client of the library with a parser of messages of its own."""

    class Client(library.Client):  # type: ignore[misc]  # the library is imported when a stream opens
        def _handle_publish(self) -> Any:
            message = parse_publish(self._in_packet["command"], bytes(self._in_packet["packet"]))
            if message.qos > MAX_QOS:  # an answer would make this client their owner: another connection would not get them again
                raise UpstreamError(
                    "The session has a subscription with QoS 2, of another client, and messages for it.",
                    hint="Use a new client_id, or end the session of this one at the server.",
                )
            self.on_message(self, None, message)
            return library.MQTT_ERR_SUCCESS

        def _handle_pubrel(self) -> Any:
            """Complete a message with QoS 2 that an earlier client of the session has taken. It would occupy a place of the session."""
            return self._send_pubcomp(int.from_bytes(self._in_packet["packet"][:2], "big"))

    return Client


class _TlsSocket(ssl.SSLSocket):
    """A socket that is closed if TLS cannot begin. The client leaves it open."""

    def do_handshake(self, block: bool = False) -> None:
        """Begin TLS."""
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise
