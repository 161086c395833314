"""Requests of the command line for connections, variables and tokens. Changes need a key or an admin's token."""

from __future__ import annotations

from headrace.client.admin.client import AdminClient
from headrace.wire.calls import admin as calls
from headrace.wire.secrets import (
    ConnectionList,
    ConnectionSummary,
    CreatedToken,
    CreateToken,
    RotateSecrets,
    SecretsRotated,
    SetConnection,
    SetVariable,
    TokenList,
    VariableList,
    VariableSummary,
)


class SecretsClient(AdminClient):
    """Request secrets from the admin API. `key` is the deployment key, or a token of scope `admin`."""

    def connections(self) -> ConnectionList:
        """Return the connections, masked."""
        return self.request(calls.LIST_CONNECTIONS, None)

    def connection(self, id: str) -> ConnectionSummary:
        """Return one connection, masked."""
        return self.request(calls.GET_CONNECTION, None, id=id)

    def set_connection(self, id: str, settings: SetConnection, *, key: str) -> None:
        """Store a connection; replace one with the same id."""
        self.request(calls.SET_CONNECTION, settings, credential=key, id=id)

    def remove_connection(self, id: str, *, key: str) -> None:
        """Delete a connection."""
        self.request(calls.REMOVE_CONNECTION, None, credential=key, id=id)

    def variables(self) -> VariableList:
        """Return the variables. Secret ones are masked."""
        return self.request(calls.LIST_VARIABLES, None)

    def variable(self, name: str) -> VariableSummary:
        """Return one variable. A secret one is masked."""
        return self.request(calls.GET_VARIABLE, None, key=name)

    def set_variable(self, name: str, settings: SetVariable, *, key: str) -> None:
        """Store a variable; replace one with the same key."""
        self.request(calls.SET_VARIABLE, settings, credential=key, key=name)

    def remove_variable(self, name: str, *, key: str) -> None:
        """Delete a variable."""
        self.request(calls.REMOVE_VARIABLE, None, credential=key, key=name)

    def rotate(self, request: RotateSecrets, *, key: str) -> SecretsRotated:
        """Encrypt one batch again with the API's first key."""
        return self.request(calls.ROTATE_SECRETS, request, credential=key)

    def make_token(self, request: CreateToken, *, key: str) -> CreatedToken:
        """Create a token for a user or a script."""
        return self.request(calls.CREATE_TOKEN, request, credential=key)

    def tokens(self) -> TokenList:
        """Return the issued tokens. The client needs the deployment key."""
        return self.request(calls.LIST_TOKENS, None)

    def revoke_token(self, id: str, *, key: str) -> None:
        """Revoke a token."""
        self.request(calls.REVOKE_TOKEN, None, credential=key, id=id)
