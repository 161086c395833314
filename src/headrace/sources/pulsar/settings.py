"""The addresses and credentials that a connection describes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.core.connection import Connection
from headrace.core.connection_settings.checks import check_connection, text_setting
from headrace.errors import UpstreamError
from headrace.sources.connections.tls import TLS_FILES, tls_files

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
    check_connection(connection, KINDS, OPTIONS, HINT)
    if not connection.host:
        raise UpstreamError(f"Connection '{connection.id}' has no host.", hint=HINT)
    if connection.login is not None or connection.password is not None:
        raise UpstreamError(f"Connection '{connection.id}' has a login: Pulsar is read with a token or a certificate.", hint=HINT)
    files = tls_files(connection, "pulsar+ssl")
    if files is not None and ("certfile" in files) != ("keyfile" in files):
        raise UpstreamError(f"Connection '{connection.id}' names one of certfile and keyfile.", hint="Give both, or none.")
    hosts = [f"[{host}]" if ":" in host else host for host in connection.host.split(",")]
    port = connection.port or PORTS[connection.kind]
    return Settings(
        f"{connection.kind}://" + ",".join(f"{host}:{port}" for host in hosts),
        _admin_url(connection, hosts[0]),
        text_setting(connection.extra, "token"),
        text_setting(connection.extra, "listener_name"),
        files,
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
