"""Connections and variables: what a running job asks for, and what people see and set. People never get a secret back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel

NAME = r"^[A-Za-z0-9_.\-]{1,200}$"
Name = Annotated[str, Field(pattern=NAME, description="Letters, digits, '.', '-' and '_'.")]
Description = Annotated[str | None, Field(max_length=1000, pattern=r"^[^\x00]*$")]
PersonScope = Literal["read", "admin"]
LONGEST_VALUE = 64 * 1024
LONGEST_TOKEN_LIFE = 366 * 24 * 3600
MASK = "***"


class ConnectionFields(WireModel):
    """What leads to a system. `extra` is whatever else it wants to know, passwords among it."""

    kind: str = Field(max_length=100, pattern=r"^[A-Za-z0-9+._\-]+$")
    host: str | None = Field(default=None, max_length=1000)
    port: int | None = Field(default=None, ge=0, le=65535)
    login: str | None = Field(default=None, max_length=1000)
    password: str | None = Field(default=None, max_length=LONGEST_VALUE, repr=False)
    database: str | None = Field(default=None, max_length=1000)
    extra: dict[str, Any] = Field(default={}, repr=False)


class ConnectionValue(ConnectionFields):
    """GET /execution/connections/{id}: one connection, in full, for a job that runs."""

    id: str


class VariableValue(WireModel):
    """GET /execution/variables/{key}: one variable, for a job that runs."""

    key: str
    value: str = Field(repr=False)
    secret: bool


class SetConnection(ConnectionFields):
    """PUT /api/v1/connections/{id}."""

    description: Description = None


class SetVariable(WireModel):
    """PUT /api/v1/variables/{key}. The value of a `secret` one is never shown."""

    value: str = Field(max_length=LONGEST_VALUE, repr=False)
    secret: bool = True
    description: Description = None


class ShownConnection(WireModel):
    """A connection as people see it. `password` is `***` where there is one; of `extra`, only the names are shown."""

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
    trouble: str | None = None


class ShownConnections(WireModel):
    """GET /api/v1/connections."""

    connections: list[ShownConnection]


class ShownVariable(WireModel):
    """A variable as people see it: `***` where it is secret."""

    key: str
    value: str
    secret: bool
    description: str | None
    updated: Timestamp
    trouble: str | None = None


class ShownVariables(WireModel):
    """GET /api/v1/variables."""

    variables: list[ShownVariable]


class RotateSecrets(WireModel):
    """POST /api/v1/secrets/rotate: seal one batch again with the first key; `after` is where the last batch ended."""

    after: str | None = Field(default=None, max_length=300, pattern=r"^[\x20-\x7e]+$")


class SecretsRotated(WireModel):
    """What one batch came to. `after` is None at the end; `unreadable` names what no key opens, which is left as it is."""

    after: str | None
    rotated: int
    current: int
    unreadable: list[str]


class MakeToken(WireModel):
    """POST /api/v1/tokens: a token for a person or a script, that lives for so many seconds unless it is taken back."""

    scope: PersonScope
    name: Name = "someone"
    seconds: int = Field(default=30 * 24 * 3600, ge=60, le=LONGEST_TOKEN_LIFE)


class TokenMade(WireModel):
    """The token, the id by which it can be taken back, and until when it opens anything."""

    token: str = Field(repr=False)
    id: str
    scope: PersonScope
    expires: Timestamp


class ShownToken(WireModel):
    """Whom a token was made for, and when it was taken back, if it was; not the token."""

    id: str
    name: str
    scope: PersonScope
    made: Timestamp
    expires: Timestamp
    revoked: Timestamp | None = None


class ShownTokens(WireModel):
    """GET /api/v1/tokens: those that have not expired."""

    tokens: list[ShownToken]
