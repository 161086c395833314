"""The client library paho-mqtt, imported when a stream opens, and clients that connect as Headrace needs it."""

from __future__ import annotations

import ssl
from typing import Any, Final

from headrace.sources.connections.client_library import import_library
from headrace.sources.connections.tls import client_context
from headrace.sources.mqtt.settings import Address

CONNECT_SECONDS: Final = 5.0


def new_client(address: Address, client_id: str) -> Any:
    """Return a client that is not connected. It does not reconnect, and acknowledges nothing by itself.

    Raises:
        UpstreamError: The client library is not installed, or a file of certificates cannot be read.
    """
    library = import_library("MQTT cannot be read: its client library", "mqtt", "paho.mqtt.client")
    client = library.Client(
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


class _TlsSocket(ssl.SSLSocket):
    """A socket that is closed if TLS cannot begin. The client leaves it open."""

    def do_handshake(self, block: bool = False) -> None:
        """Begin TLS."""
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise
