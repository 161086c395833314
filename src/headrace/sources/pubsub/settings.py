"""The project, the endpoint and the credentials that a connection describes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace.core.connection import Connection
from headrace.errors import UpstreamError

KIND: Final = "pubsub"
HINT: Final = (
    "Set it like this: pubsub:///PROJECT for the credentials of the machine, "
    'or {"kind": "pubsub", "database": "PROJECT", "extra": {"credentials": {"type": "service_account", …}}}.'
)
OPTIONS: Final = ("credentials", "emulator")
DEFAULT_HOST: Final = "pubsub.googleapis.com"
DEFAULT_PORT: Final = 443


class ClientSettings(NamedTuple):
    """The project, the address, and the service account, or None for the credentials of the machine."""

    project: str
    address: str
    is_emulator: bool
    account: Mapping[str, Any] | None


def client_settings(connection: Connection) -> ClientSettings:
    """Return the settings. Raises `UpstreamError` if the connection is of another kind, or lacks a part."""
    if connection.kind != KIND:
        raise UpstreamError(f"Connection '{connection.id}' is of kind {connection.kind!r}, not {KIND!r}.", hint=HINT)
    unknown = sorted(set(connection.extra) - set(OPTIONS))
    if unknown:
        raise UpstreamError(f"Connection '{connection.id}' has unknown settings: {', '.join(unknown)}.", hint=f"Use: {', '.join(OPTIONS)}.")
    if not connection.database:
        raise UpstreamError(f"Connection '{connection.id}' has no project.", hint=HINT)
    is_emulator = connection.extra.get("emulator") in (True, "true", "1")
    account = _account(connection)
    if is_emulator and (account is not None or not connection.host):
        raise UpstreamError(
            f"Connection '{connection.id}' cannot be used: an emulator has a host, and no credentials.",
            hint="Set it like this: pubsub://127.0.0.1:8085/PROJECT?emulator=true",
        )
    return ClientSettings(connection.database, f"{connection.host or DEFAULT_HOST}:{connection.port or DEFAULT_PORT}", is_emulator, account)


def _account(connection: Connection) -> Mapping[str, Any] | None:
    """Return the key of a service account: a JSON object, or its text. The error does not show it."""
    value = connection.extra.get("credentials")
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, Mapping) or value.get("type") != "service_account":
        raise UpstreamError(
            f"Connection '{connection.id}' cannot be used: its credentials are not the key of a service account.",
            hint="Give the JSON object of the key file, with type, client_email and private_key.",
        )
    return value
