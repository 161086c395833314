"""Connections, variables and tokens for people: what there is, masked; to set or forget it; and to encrypt all of it again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from headrace.api.auth.authentication import TokensOf, admin, deployment
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.wire import secrets as wire

Name = Annotated[str, Path(pattern=wire.NAME)]

router = APIRouter(prefix="/api/v1", tags=["secrets"])


@router.get("/connections")
def connections(store: StoreOf) -> wire.ShownConnections:
    """Return the connections, by id, with what is secret in them masked."""
    return wire.ShownConnections(connections=store.secrets.shown_connections())


@router.get("/connections/{id}")
def connection(id: Name, store: StoreOf) -> wire.ShownConnection:
    """Return one connection, with what is secret in it masked."""
    found = store.secrets.shown_connections(id)
    if not found:
        raise _missing("connection", id)
    return found[0]


@router.put("/connections/{id}", status_code=204, dependencies=[Depends(admin)])
def set_connection(id: Name, given: wire.SetConnection, store: StoreOf) -> None:
    """Keep a connection, in place of what had its id."""
    store.secrets.set_connection(id, given)


@router.delete("/connections/{id}", status_code=204, dependencies=[Depends(admin)])
def remove_connection(id: Name, store: StoreOf) -> None:
    """Delete a connection."""
    if not store.secrets.remove_connection(id):
        raise _missing("connection", id)


@router.get("/variables")
def variables(store: StoreOf) -> wire.ShownVariables:
    """Return the variables by key. Secret values are masked."""
    return wire.ShownVariables(variables=store.secrets.shown_variables())


@router.get("/variables/{key}")
def variable(key: Name, store: StoreOf) -> wire.ShownVariable:
    """Return one variable, masked where it is secret."""
    found = store.secrets.shown_variables(key)
    if not found:
        raise _missing("variable", key)
    return found[0]


@router.put("/variables/{key}", status_code=204, dependencies=[Depends(admin)])
def set_variable(key: Name, given: wire.SetVariable, store: StoreOf) -> None:
    """Keep a variable, in place of what had its key."""
    store.secrets.set_variable(key, given)


@router.delete("/variables/{key}", status_code=204, dependencies=[Depends(admin)])
def remove_variable(key: Name, store: StoreOf) -> None:
    """Delete a variable."""
    if not store.secrets.remove_variable(key):
        raise _missing("variable", key)


@router.post("/secrets/rotate", dependencies=[Depends(admin)])
def rotate(asked: wire.RotateSecrets, store: StoreOf) -> wire.SecretsRotated:
    """Encrypt the next batch of secrets with the first key."""
    return store.rotation.batch(asked)


@router.post("/tokens", dependencies=[Depends(deployment)])
def make_token(asked: wire.MakeToken, store: StoreOf, tokens: TokensOf) -> wire.TokenMade:
    """Make a token for a person or a script; only the deployment key makes one."""
    noted = store.api_tokens.add(asked)
    token = tokens.until(asked.name, asked.scope, int(noted.expires.timestamp()), id=noted.id)
    return wire.TokenMade(token=token, id=noted.id, scope=asked.scope, expires=noted.expires)


@router.get("/tokens", dependencies=[Depends(deployment)])
def tokens_made(store: StoreOf) -> wire.ShownTokens:
    """Return whom tokens were made for that have not expired, those made last first."""
    return wire.ShownTokens(tokens=store.api_tokens.listed())


@router.delete("/tokens/{id}", status_code=204, dependencies=[Depends(deployment)])
def revoke_token(id: Name, store: StoreOf, tokens: TokensOf) -> None:
    """Take a token back: here it opens nothing from now on, at other apis on the database within a second or two."""
    if not store.api_tokens.revoke(id):
        raise Refusal(404, "not-found", f"There is no token '{id}'.", hint="See what there is with: headrace token list")
    tokens.revoked |= {id}


def _missing(what: str, name: str) -> Refusal:
    return Refusal(404, "not-found", f"There is no {what} '{name}'.", hint=f"See what there is with: headrace {what}s list")
