"""What a connection to an Azure storage account says. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from headrace.core.connection import Connection
from headrace.core.connection_settings.checks import check_connection, host_address, text_setting
from headrace.errors import UpstreamError

Service: TypeAlias = Literal["blob", "queue"]
"""A service of a storage account."""

KIND: Final = "azure"
SUFFIX: Final = "core.windows.net"
OPTIONS: Final = (
    "connection_string",
    "sas_token",
    "tenant_id",
    "client_id",
    "client_secret",
    "scheme",
    "endpoint_url",
    "queue_endpoint_url",
    "ca_bundle",
)
"""The settings in the extra of a connection."""
HINT: Final = (
    "Set it like this: azure://ACCOUNT@ for the credentials of the machine, azure://ACCOUNT:KEY@ with the key percent-encoded, "
    'or {"kind": "azure", "extra": {"connection_string": "…"}}.'
)


class Identity(NamedTuple):
    """An identity of Microsoft Entra. Without a secret, it is one of the machine; `client` then names one of several."""

    tenant: str | None = None
    client: str | None = None
    secret: str | None = None


class Settings(NamedTuple):
    """Where the account is and which credentials it gets: a key, a shared access signature or, without both, an identity."""

    account: str
    addresses: Mapping[Service, str]
    key: bytes | None
    signature: str | None
    """A shared access signature: the query that authenticates a request."""
    identity: Identity
    ca_bundle: str | None


def read_settings(connection: Connection) -> Settings:
    """Return the settings of a connection. Raises `UpstreamError`."""
    subject, extra = f"Connection '{connection.id}'", connection.extra
    check_connection(connection, (KIND,), OPTIONS, HINT)
    parts = _parts(subject, connection)
    account, identity = parts.account, read_identity(subject, extra)
    credentials = [parts.key is not None, parts.signature is not None, identity.client is not None or identity.tenant is not None]
    if sum(credentials) > 1:
        raise UpstreamError(f"{subject} has several credentials.", hint="Use one of: an account key, a SAS token, an identity.")
    if not parts.addresses:
        raise UpstreamError(f"{subject} names no storage account.", hint=HINT)
    if parts.key is not None and not account:
        raise UpstreamError(f"{subject} has a key and no account.", hint=HINT)
    for address in parts.addresses.values():
        if not address.startswith(("https://", "http://")):
            raise UpstreamError(f"{subject} has an invalid address {address!r}.", hint="Use the scheme https or http.")
        if parts.key is None and not address.startswith("https://"):
            raise UpstreamError(f"{subject} would send credentials without TLS.", hint="Use scheme=https, or an account key.")
    key = None if parts.key is None else _key(subject, parts.key)
    return Settings(account, parts.addresses, key, parts.signature, identity, text_setting(extra, "ca_bundle"))


class _Parts(NamedTuple):
    """The parts that a connection string may have too."""

    account: str
    addresses: Mapping[Service, str]
    key: str | None
    signature: str | None


def _parts(subject: str, connection: Connection) -> _Parts:
    text, extra = text_setting(connection.extra, "connection_string"), connection.extra
    if text is None:
        account, signature = connection.login or "", text_setting(extra, "sas_token")
        return _Parts(account, _addresses(connection, account), connection.password, _query(signature))
    others = [connection.host, connection.login, connection.password, *(text_setting(extra, name) for name in OPTIONS[1:-1])]
    if any(one is not None for one in others):
        raise UpstreamError(f"{subject} has a connection string and other settings.", hint="Give the connection string and ca_bundle only.")
    return _from_string(subject, text)


def _from_string(subject: str, text: str) -> _Parts:
    """Return what a connection string of the service says. The error never shows the text."""
    fields = dict(part.partition("=")[::2] for part in text.strip().rstrip(";").split(";"))
    account = fields.get("AccountName", "")
    scheme, suffix = fields.get("DefaultEndpointsProtocol", "https"), fields.get("EndpointSuffix", SUFFIX)
    derived = _of_account(account, scheme, suffix) if account else {}
    named: dict[Service, str] = {}
    if "BlobEndpoint" in fields:
        named["blob"] = fields["BlobEndpoint"].rstrip("/")
    if "QueueEndpoint" in fields:
        named["queue"] = fields["QueueEndpoint"].rstrip("/")
    if not derived and not named:
        raise UpstreamError(
            f"{subject} has a connection string without AccountName and BlobEndpoint.", hint="Copy it from the access keys of the account."
        )
    return _Parts(account, {**derived, **named}, fields.get("AccountKey"), _query(fields.get("SharedAccessSignature")))


def _addresses(connection: Connection, account: str) -> dict[Service, str]:
    """Return the addresses of the services, without a slash at their ends."""
    extra = connection.extra
    addresses = _of_account(account, "https", SUFFIX) if account else {}
    if (host := host_address(connection)) is not None:
        path = "" if connection.database is None else f"/{connection.database}"
        addresses = {"blob": f"{host}{path}"}
        if ".blob." in host:
            addresses["queue"] = addresses["blob"].replace(".blob.", ".queue.", 1)
    if (blob := text_setting(extra, "endpoint_url")) is not None:
        addresses = {"blob": blob}
    if (queue := text_setting(extra, "queue_endpoint_url")) is not None:
        addresses["queue"] = queue
    return {service: address.rstrip("/") for service, address in addresses.items()}


def _of_account(account: str, scheme: str, suffix: str) -> dict[Service, str]:
    return {"blob": f"{scheme}://{account}.blob.{suffix}", "queue": f"{scheme}://{account}.queue.{suffix}"}


def read_identity(subject: str, extra: Mapping[str, Any]) -> Identity:
    """Return the identity that the extra of a connection names. Raises `UpstreamError` if it names a part of a service principal."""
    tenant, client, secret = (text_setting(extra, name) for name in ("tenant_id", "client_id", "client_secret"))
    if (secret is None) is not (tenant is None) or (secret is not None and client is None):
        raise UpstreamError(
            f"{subject} has a part of a service principal.",
            hint="Give tenant_id, client_id and client_secret, or client_id alone for an identity of the machine.",
        )
    return Identity(tenant, client, secret)


def _key(subject: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass  # the error would show a part of the key
    raise UpstreamError(f"{subject} has a key that is not Base64.", hint="Percent-encode it in a URI: / is %2F, + is %2B, = is %3D.")


def _query(signature: str | None) -> str | None:
    return None if signature is None else signature.removeprefix("?")
