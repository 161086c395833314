"""Connections, variables and tokens, as the command line asks for them; all but looking needs a key or an admin's token."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

from headrace.client.admin.client import AdminClient
from headrace.client.http.responses import bearer, raise_for_problem, translate_decode_errors, translate_transport_errors
from headrace.wire.base import WireModel
from headrace.wire.secrets import (
    MakeToken,
    RotateSecrets,
    SecretsRotated,
    SetConnection,
    SetVariable,
    ShownConnection,
    ShownConnections,
    ShownTokens,
    ShownVariable,
    ShownVariables,
    TokenMade,
)

M = TypeVar("M", bound=WireModel)


class SecretsClient(AdminClient):
    """Asks the admin API of secrets. `key` is the deployment key, or a token of scope `admin`."""

    def connections(self) -> ShownConnections:
        """Return the connections, masked."""
        return ShownConnections.model_validate(self._get("/api/v1/connections"))

    def connection(self, id: str) -> ShownConnection:
        """Return one connection, masked."""
        return ShownConnection.model_validate(self._get(_path("connections", id)))

    def set_connection(self, id: str, given: SetConnection, *, key: str) -> None:
        """Keep a connection, in place of what had its id."""
        self._send("PUT", _path("connections", id), given, key)

    def remove_connection(self, id: str, *, key: str) -> None:
        """Delete a connection."""
        self._send("DELETE", _path("connections", id), None, key)

    def variables(self) -> ShownVariables:
        """Return the variables, masked where they are secret."""
        return ShownVariables.model_validate(self._get("/api/v1/variables"))

    def variable(self, name: str) -> ShownVariable:
        """Return one variable, masked where it is secret."""
        return ShownVariable.model_validate(self._get(_path("variables", name)))

    def set_variable(self, name: str, given: SetVariable, *, key: str) -> None:
        """Keep a variable, in place of what had its key."""
        self._send("PUT", _path("variables", name), given, key)

    def remove_variable(self, name: str, *, key: str) -> None:
        """Delete a variable."""
        self._send("DELETE", _path("variables", name), None, key)

    def rotate(self, asked: RotateSecrets, *, key: str) -> SecretsRotated:
        """Seal one batch again with the api's first key."""
        return self._made("/api/v1/secrets/rotate", asked, SecretsRotated, key)

    def make_token(self, asked: MakeToken, *, key: str) -> TokenMade:
        """Make a token for a person or a script."""
        return self._made("/api/v1/tokens", asked, TokenMade, key)

    def tokens(self) -> ShownTokens:
        """Return whom tokens were made for; needs a client that shows the deployment key."""
        return ShownTokens.model_validate(self._get("/api/v1/tokens"))

    def revoke_token(self, id: str, *, key: str) -> None:
        """Take a token back."""
        self._send("DELETE", _path("tokens", id), None, key)

    def _made(self, path: str, asked: WireModel, answer: type[M], key: str) -> M:
        content = self._send("POST", path, asked, key)
        with translate_decode_errors(self._url):
            return answer.model_validate_json(content)

    def _send(self, method: str, path: str, body: WireModel | None, key: str) -> bytes:
        headers = {"Content-Type": "application/json"} | bearer(key)
        content = None if body is None else body.model_dump_json()
        with translate_transport_errors(self._url):
            response = self._http.request(method, path, content=content, headers=headers)
        return raise_for_problem(response).content


def _path(what: str, name: str) -> str:
    return f"/api/v1/{what}/{quote(name, safe='')}"
