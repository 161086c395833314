"""The settings that a connection to a service has, beside those of its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.core.connection import Connection
from headrace.errors import UpstreamError


def check_connection(connection: Connection, kinds: Sequence[str], options: Sequence[str], hint: str) -> None:
    """Raise `UpstreamError` if the connection is of another kind, or its extra has other settings."""
    if connection.kind not in kinds:
        expected = " or ".join(map(repr, kinds))
        raise UpstreamError(f"Connection '{connection.id}' is of kind {connection.kind!r}, not {expected}.", hint=hint)
    unknown = sorted(set(connection.extra) - set(options))
    if unknown:
        raise UpstreamError(f"Connection '{connection.id}' has unknown settings: {', '.join(unknown)}.", hint=f"Use: {', '.join(options)}.")


def text_setting(values: Mapping[str, Any], name: str) -> str | None:
    """Return a setting as text, or None if it is missing or empty."""
    value = values.get(name)
    return str(value) if value else None


def host_address(connection: Connection) -> str | None:
    """Return the address of scheme, host and port, or None if the connection has no host."""
    if not connection.host:
        return None
    host = f"[{connection.host}]" if ":" in connection.host else connection.host
    port = "" if connection.port is None else f":{connection.port}"
    return f"{connection.extra.get('scheme', 'https')}://{host}{port}"
