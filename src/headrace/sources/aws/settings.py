"""The settings of the client that a connection describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headrace.core.connection import Connection
from headrace.core.connection_settings.checks import check_connection, host_address
from headrace.errors import UpstreamError

OPTIONS: Final = ("region", "scheme", "endpoint_url", "session_token", "profile", "ca_bundle")
"""The settings in the extra of a connection."""


def client_settings(connection: Connection, kinds: Sequence[str], hint: str) -> dict[str, Any]:
    """Return the arguments of a client. Raises `UpstreamError` with the hint if the connection is of another kind or lacks a part."""
    check_connection(connection, kinds, OPTIONS, hint)
    extra = connection.extra
    if (connection.login is None) is not (connection.password is None):
        raise UpstreamError(f"Connection '{connection.id}' has half of the credentials.", hint=hint)
    settings: dict[str, Any] = {"region_name": extra.get("region"), "endpoint_url": _address(connection), "verify": extra.get("ca_bundle")}
    if connection.login is not None:
        settings |= {
            "aws_access_key_id": connection.login,
            "aws_secret_access_key": connection.password,
            "aws_session_token": extra.get("session_token"),
        }
    return {name: value for name, value in settings.items() if value is not None}


def profile_of(connection: Connection) -> str | None:
    """Return the profile of the AWS configuration of the machine, or None for the default one."""
    profile = connection.extra.get("profile")
    return None if profile is None else str(profile)


def _address(connection: Connection) -> str | None:
    """Return the address of the service, or None for that of the region."""
    address = connection.extra.get("endpoint_url")
    return host_address(connection) if address is None else str(address)
