"""The parameters of the client that a connection describes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace.core.connection import Connection
from headrace.errors import UpstreamError
from headrace.sources.connections.tls import TLS_FILES, tls_files

KINDS: Final = ("amqp", "amqps")
PORTS: Final = {"amqp": 5672, "amqps": 5671}
HINT: Final = "Set it like this: amqp://user:password@rabbit.example:5672/vhost, or amqps:// with TLS."
OPTIONS: Final = ("heartbeat", *TLS_FILES, "management")
"""The settings in the extra of a connection."""
DEFAULT_HEARTBEAT_SECONDS: Final = 10
MAX_HEARTBEAT_SECONDS: Final = 600
DEFAULT_VHOST: Final = "/"


class Address(NamedTuple):
    """Where and how to connect. `tls` has the files of certificates, or is None without TLS."""

    scheme: str
    host: str
    port: int
    login: str
    password: str
    vhost: str
    heartbeat: int
    tls: Mapping[str, str] | None
    management: str | None

    def __repr__(self) -> str:
        return f"Address({self.scheme}://{self.host}:{self.port}, vhost {self.vhost!r})"


def address_of(connection: Connection) -> Address:
    """Return the address that a connection describes. Raises `UpstreamError` if the kind is another or a setting is invalid."""
    if connection.kind not in KINDS:
        raise UpstreamError(f"Connection '{connection.id}' is of kind {connection.kind!r}, not 'amqp' or 'amqps'.", hint=HINT)
    unknown = sorted(set(connection.extra) - set(OPTIONS))
    if unknown:
        raise UpstreamError(f"Connection '{connection.id}' has unknown settings: {', '.join(unknown)}.", hint=f"Use: {', '.join(OPTIONS)}.")
    if not connection.host:
        raise UpstreamError(f"Connection '{connection.id}' has no host.", hint=HINT)
    return Address(
        connection.kind,
        connection.host,
        connection.port or PORTS[connection.kind],
        connection.login or "guest",
        connection.password or ("guest" if connection.login is None else ""),
        connection.database or DEFAULT_VHOST,
        _heartbeat(connection),
        tls_files(connection, "amqps"),
        _management(connection),
    )


def _heartbeat(connection: Connection) -> int:
    value: Any = connection.extra.get("heartbeat", DEFAULT_HEARTBEAT_SECONDS)
    try:
        seconds = int(value)
    except (TypeError, ValueError):
        seconds = 0
    if not 1 <= seconds <= MAX_HEARTBEAT_SECONDS:
        raise UpstreamError(
            f"Connection '{connection.id}' has an invalid heartbeat {value!r}.", hint=f"Give 1 to {MAX_HEARTBEAT_SECONDS} seconds."
        )
    return seconds


def _management(connection: Connection) -> str | None:
    value = connection.extra.get("management")
    if value is None:
        return None
    if not str(value).startswith(("http://", "https://")):
        raise UpstreamError(
            f"Connection '{connection.id}' has an invalid address of the management API {value!r}.",
            hint="Set it like this: management=http://rabbit.example:15672",
        )
    return str(value).rstrip("/")
