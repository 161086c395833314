"""What a connection to Google Cloud Storage says. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace.core.connection import Connection
from headrace.core.connection_settings.checks import check_connection, host_address, text_setting
from headrace.errors import UpstreamError

KIND: Final = "gcs"
ADDRESS: Final = "https://storage.googleapis.com"
OPTIONS: Final = ("project", "service_account", "key_file", "anonymous", "scheme", "endpoint_url", "ca_bundle")
"""The settings in the extra of a connection."""
HINT: Final = (
    "Set it like this: gcs:// for the credentials of the machine, gcs://?key_file=/etc/headrace/key.json, "
    'or {"kind": "gcs", "extra": {"service_account": {…}}} with the content of a key file.'
)


class Settings(NamedTuple):
    """Where the service is and which credentials it gets. Without key and without `is_anonymous`, they are those of the machine."""

    address: str
    project: str | None
    key: Mapping[str, Any] | None
    key_file: str | None
    is_anonymous: bool
    ca_bundle: str | None


def read_settings(connection: Connection) -> Settings:
    """Return the settings of a connection. Raises `UpstreamError`."""
    subject, extra = f"Connection '{connection.id}'", connection.extra
    check_connection(connection, (KIND,), OPTIONS, HINT)
    if connection.login is not None or connection.password is not None:
        raise UpstreamError(f"{subject} has a login or a password: Google Cloud Storage has neither.", hint=HINT)
    anonymous = str(extra.get("anonymous", "false")).lower()
    if anonymous not in ("true", "false"):
        raise UpstreamError(f"{subject} has an invalid setting anonymous {anonymous!r}.", hint="Use true or false.")
    key, key_file = _key(subject, extra.get("service_account")), text_setting(extra, "key_file")
    if (key is not None) + (key_file is not None) + (anonymous == "true") > 1:
        raise UpstreamError(f"{subject} has several credentials.", hint="Use one of: service_account, key_file, anonymous.")
    address = _address(connection)
    if not address.startswith("https://") and anonymous != "true":
        raise UpstreamError(f"{subject} would send credentials without TLS.", hint="Use scheme=https, or anonymous=true.")
    project = text_setting(extra, "project") or (None if key is None else text_setting(key, "project_id"))
    return Settings(address, project, key, key_file, anonymous == "true", text_setting(extra, "ca_bundle"))


def _key(subject: str, value: object) -> Mapping[str, Any] | None:
    """Return the content of a key file, which may be JSON in a text."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None  # the error would show the text
    if not isinstance(value, Mapping) or value.get("type") != "service_account":
        raise UpstreamError(f"{subject} has a setting service_account that is not the key of a service account.", hint=HINT)
    return value


def _address(connection: Connection) -> str:
    address = text_setting(connection.extra, "endpoint_url") or host_address(connection) or ADDRESS
    if not address.startswith(("https://", "http://")):
        raise UpstreamError(f"Connection '{connection.id}' has an invalid address {address!r}.", hint="Use the scheme https or http.")
    return address.rstrip("/")
