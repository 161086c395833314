"""Probe of a connection to an MQTT server."""

from __future__ import annotations

import asyncio
from secrets import token_hex

from headrace.core.connection import Connection
from headrace.sources.mqtt.client import MqttClient
from headrace.sources.mqtt.settings import address_of


def probe(connection: Connection) -> str:
    """Connect with a session of its own, and return the address and the user.

    Raises:
        UpstreamError: The client library is missing, or the server refuses the credentials or the certificate.
        StreamError: The server does not answer.
    """
    return asyncio.run(_probe(connection))


async def _probe(connection: Connection) -> str:
    address = address_of(connection)
    client = MqttClient(_ignore, _ignore)
    try:
        session = await client.open(address, f"headrace-test-{token_hex(4)}", expiry=0, receive_maximum=1)
    finally:
        await client.aclose()
    user = "no user" if address.login is None else f"user {address.login}"
    return f"MQTT 5 at {address.host}:{address.port}: {user}" + ("" if session.has_qos else ", QoS 0 only")


def _ignore(_: object) -> None:
    """Ignore a message, and the end of the connection: the opening reports it."""
