"""The parameters of libpq that a connection describes. Pure."""

from __future__ import annotations

from typing import Any, Final

from headrace.core.connection import Connection
from headrace.errors import UpstreamError
from headrace.sources.postgres.decoding.values import SESSION_SETTINGS

KINDS: Final = frozenset({"postgresql", "postgres"})
CONNECT_SECONDS: Final = 10
DEFAULTS: Final = {
    "connect_timeout": str(CONNECT_SECONDS),
    "application_name": "headrace",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
"""Parameters that a connection may change."""


def connect_parameters(connection: Connection) -> dict[str, Any]:
    """Return the parameters with which both sessions of the upstream connect. Raises `UpstreamError` if the kind is another."""
    if connection.kind not in KINDS:
        raise UpstreamError(
            f"Connection '{connection.id}' is of kind {connection.kind!r}, not 'postgresql'.",
            hint="Set it like this: postgresql://user:password@db.example:5432/shop",
        )
    fields = {
        "host": connection.host,
        "port": connection.port,
        "user": connection.login,
        "password": connection.password,
        "dbname": connection.database,
    }
    parameters = {name: value for name, value in fields.items() if value is not None}
    extra = {name: str(value) for name, value in connection.extra.items() if name != "replication"}
    # The last setting of a parameter counts, so a connection does not change these formats.
    options = " ".join([extra.pop("options", ""), *(f"-c {name}={value}" for name, value in SESSION_SETTINGS.items())]).strip()
    return DEFAULTS | parameters | extra | {"options": options, "client_encoding": "UTF8"}
