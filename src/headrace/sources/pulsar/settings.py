"""The addresses and credentials that a connection describes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.core.connection import Connection
from headrace.errors import UpstreamError
from headrace.sources.connections.tls import TLS_FILES

KINDS: Final = ("pulsar", "pulsar+ssl")
PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}
ADMIN: Final = {"pulsar": ("http", 8080), "pulsar+ssl": ("https", 8443)}
"""Scheme and default port of the admin API."""
HINT: Final = "Set it like this: pulsar+ssl://pulsar.example:6651?token=TOKEN&admin_url=https://pulsar.example:8443"
OPTIONS: Final = ("token", "admin_url", "listener_name", *TLS_FILES)
"""The settings in the extra of a connection."""


class Settings(NamedTuple):
    """Where and how to connect. `tls` has the files of certificates, or is None without TLS."""

    service_url: str
    admin_url: str
    token: str | None
    listener_name: str | None
    tls: Mapping[str, str] | None

    def __repr__(self) -> str:
        return f"Settings({self.service_url}, {self.admin_url})"


def settings_of(connection: Connection) -> Settings:
    """Return the settings of a connection. Raises `UpstreamError` if the kind is another or a setting is invalid."""
    if connection.kind not in KINDS:
        raise UpstreamError(f"Connection '{connection.id}' is of kind {connection.kind!r}, not 'pulsar' or 'pulsar+ssl'.", hint=HINT)
    extra = connection.extra
    unknown = sorted(set(extra) - set(OPTIONS))
    if unknown:
        raise UpstreamError(f"Connection '{connection.id}' has unknown settings: {', '.join(unknown)}.", hint=f"Use: {', '.join(OPTIONS)}.")
    if not connection.host:
        raise UpstreamError(f"Connection '{connection.id}' has no host.", hint=HINT)
    if connection.login is not None or connection.password is not None:
        raise UpstreamError(f"Connection '{connection.id}' has a login: Pulsar is read with a token or a certificate.", hint=HINT)
    files = {name: str(extra[name]) for name in TLS_FILES if extra.get(name)}
    has_tls = connection.kind == "pulsar+ssl"
    if files and not has_tls:
        raise UpstreamError(f"Connection '{connection.id}' names certificates, but is without TLS.", hint="Use the kind pulsar+ssl.")
    if ("certfile" in files) != ("keyfile" in files):
        raise UpstreamError(f"Connection '{connection.id}' names one of certfile and keyfile.", hint="Give both, or none.")
    hosts = [f"[{host}]" if ":" in host else host for host in connection.host.split(",")]
    port = connection.port or PORTS[connection.kind]
    return Settings(
        f"{connection.kind}://" + ",".join(f"{host}:{port}" for host in hosts),
        _admin_url(connection, hosts[0]),
        str(extra["token"]) if extra.get("token") else None,
        str(extra["listener_name"]) if extra.get("listener_name") else None,
        files if has_tls else None,
    )


def _admin_url(connection: Connection, host: str) -> str:
    value = connection.extra.get("admin_url")
    if value is None:
        scheme, port = ADMIN[connection.kind]
        return f"{scheme}://{host}:{port}"
    if not str(value).startswith(("http://", "https://")):
        raise UpstreamError(
            f"Connection '{connection.id}' has an invalid address of the admin API {value!r}.",
            hint="Set it like this: admin_url=https://pulsar.example:8443",
        )
    return str(value).rstrip("/")
