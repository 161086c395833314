"""Admin routes of connections, variables, tokens, and the rotation of keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from headrace.api.auth.authentication import TokensOf
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.routing import route
from headrace.wire import secrets as wire
from headrace.wire.calls import admin as calls

Name = Annotated[str, Path(pattern=wire.NAME)]

router = APIRouter(tags=["secrets"])


@route(router, calls.LIST_CONNECTIONS)
def connections(store: StoreOf) -> wire.ConnectionList:
    """Return the connections by id. Secrets are masked."""
    return wire.ConnectionList(connections=store.secrets.connection_summaries())


@route(router, calls.GET_CONNECTION)
def connection(id: Name, store: StoreOf) -> wire.ConnectionSummary:
    """Return one connection. Secrets are masked."""
    return store.secrets.connection_summary(id)


@route(router, calls.SET_CONNECTION)
def set_connection(id: Name, settings: wire.SetConnection, store: StoreOf) -> None:
    """Create or replace a connection."""
    store.secrets.set_connection(id, settings)


@route(router, calls.REMOVE_CONNECTION)
def remove_connection(id: Name, store: StoreOf) -> None:
    """Delete a connection."""
    store.secrets.remove_connection(id)


@route(router, calls.LIST_VARIABLES)
def variables(store: StoreOf) -> wire.VariableList:
    """Return the variables by key. Secret values are masked."""
    return wire.VariableList(variables=store.secrets.variable_summaries())


@route(router, calls.GET_VARIABLE)
def variable(key: Name, store: StoreOf) -> wire.VariableSummary:
    """Return one variable. A secret value is masked."""
    return store.secrets.variable_summary(key)


@route(router, calls.SET_VARIABLE)
def set_variable(key: Name, settings: wire.SetVariable, store: StoreOf) -> None:
    """Create or replace a variable."""
    store.secrets.set_variable(key, settings)


@route(router, calls.REMOVE_VARIABLE)
def remove_variable(key: Name, store: StoreOf) -> None:
    """Delete a variable."""
    store.secrets.remove_variable(key)


@route(router, calls.ROTATE_SECRETS)
def rotate(body: wire.RotateSecrets, store: StoreOf) -> wire.SecretsRotated:
    """Encrypt the next batch of secrets with the first key."""
    return store.rotation.batch(body)


@route(router, calls.CREATE_TOKEN)
def make_token(body: wire.CreateToken, store: StoreOf, tokens: TokensOf) -> wire.CreatedToken:
    """Create a token for a user or a script."""
    noted = store.api_tokens.add(body)
    token = tokens.until(body.name, body.scope, int(noted.expires.timestamp()), id=noted.id)
    return wire.CreatedToken(token=token, id=noted.id, scope=body.scope, expires=noted.expires)


@route(router, calls.LIST_TOKENS)
def list_tokens(store: StoreOf) -> wire.TokenList:
    """Return the tokens that have not expired, the newest first."""
    return wire.TokenList(tokens=store.api_tokens.listed())


@route(router, calls.REVOKE_TOKEN)
def revoke_token(id: Name, store: StoreOf, tokens: TokensOf) -> None:
    """Revoke a token: at once on this API server, within two seconds on others of the database."""
    if not store.api_tokens.revoke(id):
        raise Refusal(404, "not-found", f"There is no token '{id}'.", hint="See what there is with: headrace tokens list")
    tokens.revoked |= {id}
