"""The settings of the object stores' client that a connection describes."""

from __future__ import annotations

from typing import Final

from headrace.core.connection import Connection
from headrace.errors import TablesRefused

OPTIONS: Final = frozenset({"region", "scheme", "endpoint_url", "session_token"})
"""The settings in the extra of a connection that tables can use."""
_KINDS: Final = ("s3", "aws")
_HINT: Final = "Set it like this: s3://ACCESS_KEY:SECRET@?region=eu-west-1, or s3://?region=eu-west-1 for the credentials of the machine."


def client_options(connection: Connection) -> dict[str, str]:
    """Return the settings of deltalake and obstore for a connection. Without a login, the client uses the credentials of the machine.

    Raises:
        TablesRefused: It is not a connection to S3, or it has a setting that tables cannot use.
    """
    what = f"The connection '{connection.id}' cannot be used for tables"
    if connection.kind not in _KINDS:
        raise TablesRefused(f"{what}: it is of kind {connection.kind!r}, not 's3' or 'aws'.", hint=_HINT)
    unknown = sorted(set(connection.extra) - OPTIONS)
    if unknown:
        raise TablesRefused(f"{what}: it has the settings {', '.join(unknown)}.", hint=f"Tables use these: {', '.join(sorted(OPTIONS))}.")
    if (connection.login is None) is not (connection.password is None):
        raise TablesRefused(f"{what}: it has half of the credentials.", hint=_HINT)
    address = _address(connection)
    options = {
        "aws_region": connection.extra.get("region", "us-east-1" if address else None),
        "aws_access_key_id": connection.login,
        "aws_secret_access_key": connection.password,
        "aws_session_token": connection.extra.get("session_token"),
        "aws_endpoint": address,
        "aws_allow_http": "true" if address and address.startswith("http:") else None,
    }
    return {name: str(value) for name, value in options.items() if value}


def _address(connection: Connection) -> str | None:
    """Return the address of the service, or None for that of the region."""
    if address := connection.extra.get("endpoint_url"):
        return str(address)
    if not connection.host:
        return None
    host = f"[{connection.host}]" if ":" in connection.host else connection.host
    port = "" if connection.port is None else f":{connection.port}"
    return f"{connection.extra.get('scheme', 'https')}://{host}{port}"
