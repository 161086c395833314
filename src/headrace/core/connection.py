"""Access data of external systems. The `repr` of a connection has no secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from headrace.errors import SecretError

FIELDS = ("kind", "host", "port", "login", "password", "database", "extra")
EXAMPLE = """Like this: postgresql://ada:secret@db.example/flights?sslmode=require, or {"kind": "http", "host": "api.example"}."""


@dataclass(frozen=True)
class Connection:
    """Access data of one system. `kind` is its type (`postgresql`, `http`, …); `extra` has further settings of that system."""

    id: str
    kind: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

    @property
    def url(self) -> str:
        """The connection as a URI with its password; `extra` is the query."""
        user = quote(self.login or "", safe="")
        if self.password is not None:
            user += f":{quote(self.password, safe='')}"
        host = f"[{self.host}]" if self.host and ":" in self.host else self.host or ""
        authority = f"{user}@{host}" if user else host
        port = "" if self.port is None else f":{self.port}"
        path = "" if self.database is None else f"/{quote(self.database, safe='/')}"
        query = urlencode({name: value if isinstance(value, str) else json.dumps(value) for name, value in self.extra.items()})
        return f"{self.kind}://{authority}{port}{path}" + (f"?{query}" if query else "")

    @property
    def address(self) -> str:
        """The connection as a URI without credentials and query."""
        host = f"[{self.host}]" if self.host and ":" in self.host else self.host or ""
        port = "" if self.port is None else f":{self.port}"
        return f"{self.kind}://{host}{port}" + ("" if self.database is None else f"/{quote(self.database, safe='/')}")

    def secrets(self) -> list[str]:
        """Return all secret texts: the password and the texts in `extra`."""
        return [text for text in (self.password, *_texts(self.extra)) if text]

    def fields(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        held = {name: getattr(self, name) for name in FIELDS if getattr(self, name) is not None}
        return held | {"extra": dict(self.extra)}


def parse_connection(id: str, text: str) -> Connection:
    """Return the connection that a URI or a JSON object describes. Raises `SecretError`, which never shows the text."""
    try:
        return _from_json(id, text) if text.lstrip().startswith("{") else _from_uri(id, text.strip())
    except (ValueError, TypeError):
        pass  # the cause would show the text
    raise SecretError(f"Connection '{id}' is neither a URI nor a JSON object that describes a connection.", hint=EXAMPLE)


def _from_uri(id: str, text: str) -> Connection:
    parts = urlsplit(text)
    if not parts.scheme or "://" not in text:
        raise ValueError("no scheme")
    return Connection(
        id,
        kind=parts.scheme,
        host=parts.hostname,
        port=parts.port,
        login=_unquoted(parts.username),
        password=_unquoted(parts.password),
        database=_unquoted(parts.path.removeprefix("/")),
        extra=dict(parse_qsl(parts.query, keep_blank_values=True)),
    )


def _from_json(id: str, text: str) -> Connection:
    fields = json.loads(text)
    extra = fields.pop("extra", None) or {}
    if fields.keys() - set(FIELDS) or not isinstance(extra, dict):
        raise ValueError("unknown fields")
    for name, value in fields.items():
        expected = int if name == "port" else str
        if value is not None and (not isinstance(value, expected) or isinstance(value, bool)):
            raise ValueError("a field of the wrong kind")
    return Connection(id, extra=extra, **fields)


def _unquoted(text: str | None) -> str | None:
    return unquote(text) if text else None


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for part in value.values() for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in _texts(part)]
    return []
