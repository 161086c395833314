"""Connections and variables: as running jobs read them, and as users list and set them. Users never get a secret back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel

NAME = r"^[A-Za-z0-9_.\-]{1,200}$"
Name = Annotated[str, Field(pattern=NAME, description="Letters, digits, '.', '-' and '_'.")]
Description = Annotated[str | None, Field(max_length=1000, pattern=r"^[^\x00]*$")]
PersonScope = Literal["read", "admin"]
MAX_VALUE_CHARS = 64 * 1024
MAX_TOKEN_SECONDS = 366 * 24 * 3600
MASK = "***"


class ConnectionFields(WireModel):
    """The address and credentials of a system. `extra` has further settings, which may be passwords."""

    kind: str = Field(max_length=100, pattern=r"^[A-Za-z0-9+._\-]+$")
    host: str | None = Field(default=None, max_length=1000)
    port: int | None = Field(default=None, ge=0, le=65535)
    login: str | None = Field(default=None, max_length=1000)
    password: str | None = Field(default=None, max_length=MAX_VALUE_CHARS, repr=False)
    database: str | None = Field(default=None, max_length=1000)
    extra: dict[str, Any] = Field(default={}, repr=False)


class ConnectionValue(ConnectionFields):
    """GET /execution/connections/{id}: one connection with its secrets, for a running job."""

    id: str


class VariableValue(WireModel):
    """GET /execution/variables/{key}: one variable, for a running job."""

    key: str
    value: str = Field(repr=False)
    secret: bool


class SetConnection(ConnectionFields):
    """PUT /api/v1/connections/{id}."""

    description: Description = None


class SetVariable(WireModel):
    """PUT /api/v1/variables/{key}. The value of a `secret` variable is never returned."""

    value: str = Field(max_length=MAX_VALUE_CHARS, repr=False)
    secret: bool = True
    description: Description = None


class ConnectionSummary(WireModel):
    """A connection without its secrets. A `password` is `***`, and `extra` has names only."""

    id: str
    kind: str
    host: str | None
    port: int | None
    login: str | None
    password: str | None
    database: str | None
    extra: list[str]
    description: str | None
    updated: Timestamp
    error: str | None = None


class ConnectionList(WireModel):
    """GET /api/v1/connections."""

    connections: list[ConnectionSummary]


class VariableSummary(WireModel):
    """A variable. The value is `***` if it is secret."""

    key: str
    value: str
    secret: bool
    description: str | None
    updated: Timestamp
    error: str | None = None


class VariableList(WireModel):
    """GET /api/v1/variables."""

    variables: list[VariableSummary]


class RotateSecrets(WireModel):
    """POST /api/v1/secrets/rotate: encrypt one batch again with the first key. `after` is the end of the batch before."""

    after: str | None = Field(default=None, max_length=300, pattern=r"^[\x20-\x7e]+$")


class SecretsRotated(WireModel):
    """The result of one batch. `after` is null at the end. `unreadable` names secrets that no key decrypts, which stay as they are."""

    after: str | None
    rotated: int
    current: int
    unreadable: list[str]


class CreateToken(WireModel):
    """POST /api/v1/tokens: a token for a user or a script, with its lifetime in seconds."""

    scope: PersonScope
    name: Name = "unnamed"
    seconds: int = Field(default=30 * 24 * 3600, ge=60, le=MAX_TOKEN_SECONDS)


class CreatedToken(WireModel):
    """The token, the id to revoke it, and the time at which it expires."""

    token: str = Field(repr=False)
    id: str
    scope: PersonScope
    expires: Timestamp


class TokenSummary(WireModel):
    """The owner of a token, and the time at which it was revoked, if it was. The token itself is not returned."""

    id: str
    name: str
    scope: PersonScope
    created: Timestamp
    expires: Timestamp
    revoked: Timestamp | None = None


class TokenList(WireModel):
    """GET /api/v1/tokens: tokens that have not expired."""

    tokens: list[TokenSummary]
