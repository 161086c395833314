"""The settings of the object stores' clients that a connection describes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final

from headrace.core.connection import Connection
from headrace.core.connection_settings import azure
from headrace.core.connection_settings.checks import check_connection, host_address, text_setting
from headrace.errors import TablesRefused, UpstreamError

ALLOW_HTTP: Final = "allow_http"
S3_OPTIONS: Final = ("endpoint_url", "region", "scheme", "session_token")
"""The settings in the extra of a connection to S3 that tables can use."""
_S3_HINT: Final = (
    "Set it like this: s3://ACCESS_KEY:SECRET@?region=eu-west-1, or s3://?region=eu-west-1 for the credentials of the machine."
)
_AUTHORITY_HINT: Final = "Remove ca_bundle, and add the authority to the certificates of the driver's machine, or set SSL_CERT_FILE there."


def client_options(scheme: str, connection: Connection) -> dict[str, str]:
    """Return the settings of deltalake and obstore for locations of this scheme.

    Without credentials in the connection, the client uses those of the machine.

    Raises:
        TablesRefused: The connection is of another kind, or it has a setting that tables cannot use.
    """
    try:
        options = _OPTIONS[scheme](connection)
    except UpstreamError as error:
        raise TablesRefused(f"The connection '{connection.id}' cannot be used for tables: {error}", hint=error.hint) from error
    return {name: value for name, value in options.items() if value}


def _s3(connection: Connection) -> dict[str, str | None]:
    check_connection(connection, ("s3", "aws"), S3_OPTIONS, _S3_HINT)
    if (connection.login is None) is not (connection.password is None):
        raise UpstreamError(f"Connection '{connection.id}' has half of the credentials.", hint=_S3_HINT)
    address = text_setting(connection.extra, "endpoint_url") or host_address(connection)
    return {
        "aws_region": connection.extra.get("region", "us-east-1" if address else None),
        "aws_access_key_id": connection.login,
        "aws_secret_access_key": connection.password,
        "aws_session_token": connection.extra.get("session_token"),
        "aws_endpoint": address,
        ALLOW_HTTP: _allows_http(address),
    }


def _azure(connection: Connection) -> dict[str, str | None]:
    settings = azure.read_settings(connection)
    if settings.ca_bundle is not None:
        raise UpstreamError(f"Connection '{connection.id}' has the setting ca_bundle.", hint=_AUTHORITY_HINT)
    identity, address = settings.identity, settings.addresses["blob"]
    return {
        "azure_storage_account_name": settings.account,
        "azure_storage_account_key": None if settings.key is None else base64.b64encode(settings.key).decode(),
        "azure_storage_sas_key": settings.signature,
        "azure_storage_tenant_id": identity.tenant,
        "azure_storage_client_id": identity.client,
        "azure_storage_client_secret": identity.secret,
        "azure_storage_endpoint": address,
        ALLOW_HTTP: _allows_http(address),
    }


def _allows_http(address: str | None) -> str | None:
    return "true" if address is not None and address.startswith("http:") else None


_OPTIONS: Final[Mapping[str, Callable[[Connection], dict[str, str | None]]]] = {"s3": _s3, "az": _azure}
