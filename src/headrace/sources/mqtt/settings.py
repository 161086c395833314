"""The address and the credentials that a connection describes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.core.connection import Connection
from headrace.errors import UpstreamError
from headrace.sources.connections.tls import TLS_FILES, tls_files

PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
"""The kinds of connections, with their default ports."""
HINT: Final = "Set it like this: mqtt://user:password@mqtt.example:1883, or mqtts:// with TLS."
OPTIONS: Final = ("keepalive", *TLS_FILES)
"""The settings in the extra of a connection."""
DEFAULT_KEEPALIVE_SECONDS: Final = 10
MAX_KEEPALIVE_SECONDS: Final = 600


class Address(NamedTuple):
    """Where and how to connect. `tls` has the files of certificates, or is None without TLS. `keepalive` is in seconds."""

    host: str
    port: int
    login: str | None
    password: str | None
    keepalive: int
    tls: Mapping[str, str] | None

    def __repr__(self) -> str:
        return f"Address({self.host}:{self.port})"


def address_of(connection: Connection) -> Address:
    """Return the address that a connection describes. Raises `UpstreamError` if the kind is another or a setting is invalid."""
    if connection.kind not in PORTS:
        raise UpstreamError(f"Connection '{connection.id}' is of kind {connection.kind!r}, not 'mqtt' or 'mqtts'.", hint=HINT)
    unknown = sorted(set(connection.extra) - set(OPTIONS))
    if unknown:
        raise UpstreamError(f"Connection '{connection.id}' has unknown settings: {', '.join(unknown)}.", hint=f"Use: {', '.join(OPTIONS)}.")
    if not connection.host:
        raise UpstreamError(f"Connection '{connection.id}' has no host.", hint=HINT)
    if connection.database:
        raise UpstreamError(f"Connection '{connection.id}' has a path: {connection.database!r}.", hint=f"MQTT has none. {HINT}")
    return Address(
        connection.host,
        connection.port or PORTS[connection.kind],
        connection.login,
        connection.password,
        _keepalive(connection),
        tls_files(connection, "mqtts"),
    )


def _keepalive(connection: Connection) -> int:
    text = str(connection.extra.get("keepalive", DEFAULT_KEEPALIVE_SECONDS))
    seconds = int(text) if text.isascii() and text.isdecimal() else 0
    if not 1 <= seconds <= MAX_KEEPALIVE_SECONDS:
        raise UpstreamError(
            f"Connection '{connection.id}' has an invalid keepalive {text!r}.", hint=f"Give 1 to {MAX_KEEPALIVE_SECONDS} seconds."
        )
    return seconds
