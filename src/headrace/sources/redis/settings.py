"""The settings of the client that a connection describes. Pure."""

from __future__ import annotations

from typing import Any, Final

from headrace.core.connection import Connection
from headrace.errors import UpstreamError

PLAIN_KINDS: Final = frozenset({"redis", "valkey"})
TLS_KINDS: Final = frozenset({"rediss", "valkeys"})
DEFAULT_PORT: Final = 6379
HINT: Final = "Set it like this: redis://user:password@redis.example:6379/0, or rediss://… for TLS."
OPTIONS: Final = {
    "ca_certs": "ssl_ca_certs",
    "certfile": "ssl_certfile",
    "keyfile": "ssl_keyfile",
    "check_hostname": "ssl_check_hostname",
}
"""The settings in the extra of a connection with TLS, and their names in the client."""


def client_settings(connection: Connection) -> dict[str, Any]:
    """Return the arguments of the client. Raises `UpstreamError` if the connection is of another kind or has a wrong part."""
    if connection.kind not in PLAIN_KINDS | TLS_KINDS:
        raise UpstreamError(f"Connection '{connection.id}' is of kind {connection.kind!r}, not 'redis' or 'rediss'.", hint=HINT)
    is_tls = connection.kind in TLS_KINDS
    unknown = sorted(set(connection.extra) - set(OPTIONS))
    if unknown:
        raise UpstreamError(f"Connection '{connection.id}' has unknown settings: {', '.join(unknown)}.", hint=f"Use: {', '.join(OPTIONS)}.")
    if connection.extra and not is_tls:
        raise UpstreamError(f"Connection '{connection.id}' has settings of TLS without TLS.", hint="Begin it with rediss://")
    options: dict[str, Any] = {OPTIONS[name]: str(value) for name, value in connection.extra.items() if name != "check_hostname"}
    if "check_hostname" in connection.extra:
        options["ssl_check_hostname"] = _is_true(connection)
    return {
        "host": connection.host or "localhost",
        "port": connection.port or DEFAULT_PORT,
        "db": _database(connection),
        "username": connection.login,
        "password": connection.password,
        "ssl": is_tls,
        **options,
    }


def _database(connection: Connection) -> int:
    text = connection.database or "0"
    if not text.isascii() or not text.isdecimal():
        raise UpstreamError(f"Connection '{connection.id}' has the database {text!r}, which is not a number.", hint=HINT)
    return int(text)


def _is_true(connection: Connection) -> bool:
    text = str(connection.extra["check_hostname"]).lower()
    if text not in ("true", "false"):
        raise UpstreamError(f"Connection '{connection.id}' has check_hostname={text!r}.", hint="Use true or false.")
    return text == "true"
