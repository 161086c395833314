"""The namespace and the credentials that a connection describes."""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.core.connection import Connection
from headrace.core.connection_settings.azure import Identity, read_identity
from headrace.core.connection_settings.checks import check_connection, text_setting
from headrace.errors import UpstreamError

KIND: Final = "servicebus"
OPTIONS: Final = ("connection_string", "tenant_id", "client_id", "client_secret", "emulator", "ca_bundle")
HINT: Final = (
    "Set it like this: servicebus://NAMESPACE.servicebus.windows.net for the credentials of the machine, "
    "servicebus://POLICY:KEY@NAMESPACE.servicebus.windows.net with the key percent-encoded, "
    'or {"kind": "servicebus", "extra": {"connection_string": "…"}}.'
)


class Policy(NamedTuple):
    """A shared access policy: its name and one of its keys."""

    name: str
    key: str


class ClientSettings(NamedTuple):
    """The address, and a policy or an identity. The address of an emulator has its port, and is used without TLS."""

    address: str
    is_emulator: bool
    policy: Policy | None
    identity: Identity
    ca_bundle: str | None


def client_settings(connection: Connection) -> ClientSettings:
    """Return the settings. Raises `UpstreamError` if the connection is of another kind, or lacks a part."""
    check_connection(connection, (KIND,), OPTIONS, HINT)
    subject, extra = f"Connection '{connection.id}'", connection.extra
    identity, ca_bundle = read_identity(subject, extra), text_setting(extra, "ca_bundle")
    if connection.database:
        raise UpstreamError(f"{subject} has a path.", hint="Leave it out: the upstream names the queue or the topic.")
    text = text_setting(extra, "connection_string")
    if text is None:
        if not connection.host:
            raise UpstreamError(f"{subject} names no namespace.", hint=HINT)
        is_emulator = extra.get("emulator") in (True, "true", "1")
        if connection.port is not None and not is_emulator:
            raise UpstreamError(f"{subject} has a port.", hint="Leave it out: the service has port 5671. Only an emulator has another.")
        host = f"[{connection.host}]" if ":" in connection.host else connection.host
        settings = ClientSettings(
            host if connection.port is None else f"{host}:{connection.port}",
            is_emulator,
            _policy(subject, connection.login, connection.password),
            identity,
            ca_bundle,
        )
    elif connection.host or connection.login or connection.password or "emulator" in extra:
        raise UpstreamError(f"{subject} has a connection string and other settings.", hint="Give the connection string and ca_bundle only.")
    else:
        settings = _from_string(subject, text, identity, ca_bundle)
    if settings.policy is not None and identity != Identity():
        raise UpstreamError(f"{subject} has several credentials.", hint="Use a policy with its key, or an identity.")
    if settings.is_emulator and settings.policy is None:
        raise UpstreamError(f"{subject} would send a token without TLS.", hint="Give the policy and the key of the emulator.")
    return settings


def _from_string(subject: str, text: str, identity: Identity, ca_bundle: str | None) -> ClientSettings:
    """Return what a connection string of the service says. The error never shows the text."""
    fields = dict(part.partition("=")[::2] for part in text.strip().rstrip(";").split(";"))
    address = fields.get("Endpoint", "").strip().rstrip("/").removeprefix("sb://")
    if not address or "/" in address:
        raise UpstreamError(
            f"{subject} has a connection string without an Endpoint.", hint="Copy it from the shared access policies of the namespace."
        )
    policy = _policy(subject, fields.get("SharedAccessKeyName"), fields.get("SharedAccessKey"))
    if policy is None:
        raise UpstreamError(f"{subject} has a connection string without a key.", hint="Give SharedAccessKeyName and SharedAccessKey.")
    return ClientSettings(address, fields.get("UseDevelopmentEmulator", "").lower() == "true", policy, identity, ca_bundle)


def _policy(subject: str, name: str | None, key: str | None) -> Policy | None:
    if not name and not key:
        return None
    if not name or not key:
        raise UpstreamError(f"{subject} has a part of a shared access policy.", hint="Give the name of the policy and its key.")
    return Policy(name, key)
