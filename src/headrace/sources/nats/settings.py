"""The options of the client that a connection describes."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.core.connection import Connection
from headrace.errors import UpstreamError

DEFAULT_PORT: Final = 4222
KIND: Final = "nats"
HINT: Final = f"Set it like this: {KIND}://user:password@nats.example:{DEFAULT_PORT}"
CREDENTIALS: Final = ("token", "nkey_seed", "credentials")
OPTIONS: Final = (*CREDENTIALS, "tls", "ca_file", "cert_file", "key_file", "tls_hostname", "tls_first", "domain", "inbox_prefix")
"""The settings in the extra of a connection."""


class ClientSettings(NamedTuple):
    """The addresses, the options of the client, and the prefix of JetStream's API. `credentials` is the text of a .creds file."""

    servers: tuple[str, ...]
    options: Mapping[str, Any]
    credentials: str | None
    api_prefix: str


def client_settings(connection: Connection) -> ClientSettings:
    """Return the settings. Raises `UpstreamError` if the connection is of another kind, or lacks a part."""
    if connection.kind != KIND:
        raise UpstreamError(f"Connection '{connection.id}' is of kind {connection.kind!r}, not {KIND!r}.", hint=HINT)
    extra = connection.extra
    unknown = sorted(set(extra) - set(OPTIONS))
    if unknown:
        raise UpstreamError(f"Connection '{connection.id}' has unknown settings: {', '.join(unknown)}.", hint=f"Use: {', '.join(OPTIONS)}.")
    if not connection.host:
        raise UpstreamError(f"Connection '{connection.id}' has no address of a server.", hint=HINT)
    domain = extra.get("domain")
    return ClientSettings(
        _servers(connection.host, connection.port or DEFAULT_PORT),
        _login(connection) | _tls(connection) | ({"inbox_prefix": str(extra["inbox_prefix"])} if extra.get("inbox_prefix") else {}),
        _text(extra.get("credentials")),
        f"$JS.{domain}.API" if domain else "$JS.API",
    )


def _login(connection: Connection) -> dict[str, Any]:
    extra = connection.extra
    credentials = [name for name in CREDENTIALS if extra.get(name)] + (["login"] if connection.login is not None else [])
    if len(credentials) > 1:
        raise UpstreamError(f"Connection '{connection.id}' has several credentials: {', '.join(credentials)}.", hint="Keep one of them.")
    if connection.login is not None:
        if connection.password is None:
            return {"token": connection.login}
        return {"user": connection.login, "password": connection.password}
    if extra.get("token"):
        return {"token": str(extra["token"])}
    if extra.get("nkey_seed"):
        return {"nkeys_seed_str": str(extra["nkey_seed"])}
    return {}


def _tls(connection: Connection) -> dict[str, Any]:
    extra = connection.extra
    files = {name: str(extra[name]) for name in ("ca_file", "cert_file", "key_file") if extra.get(name)}
    if not files and not _is_true(extra.get("tls")) and not _is_true(extra.get("tls_first")):
        return {}
    for name, path in files.items():
        if not Path(path).is_file():
            raise UpstreamError(f"Connection '{connection.id}' cannot be used: {name} {path} is not a file.", hint="Correct the path.")
    try:
        context = ssl.create_default_context(cafile=files.get("ca_file"))
        if "cert_file" in files:
            context.load_cert_chain(files["cert_file"], files.get("key_file"))
    except (ssl.SSLError, OSError) as error:
        raise UpstreamError(
            f"Connection '{connection.id}' cannot be used: its certificates cannot be loaded: {error}.", hint="They must be PEM files."
        ) from None
    options: dict[str, Any] = {"tls": context}
    if extra.get("tls_hostname"):
        options["tls_hostname"] = str(extra["tls_hostname"])
    if _is_true(extra.get("tls_first")):
        options["tls_handshake_first"] = True
    return options


def _is_true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() in ("true", "1", "yes", "require"))


def _text(value: object) -> str | None:
    return str(value) if value else None


def _servers(hosts: str, port: int) -> tuple[str, ...]:
    """Return the addresses of one or several hosts, separated by commas, with the port where they have none."""
    parts = [host.strip() for host in hosts.split(",") if host.strip()]
    if len(parts) == 1 and parts[0].count(":") > 1 and not parts[0].startswith("["):
        return (f"{KIND}://[{parts[0]}]:{port}",)
    return tuple(f"{KIND}://{host}" if host.rpartition(":")[2].isdecimal() and ":" in host else f"{KIND}://{host}:{port}" for host in parts)
