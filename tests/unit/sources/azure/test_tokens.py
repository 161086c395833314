"""Errors of the library for tokens."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.core.connection_settings.azure import Identity
from headrace.errors import StreamError, UpstreamError
from headrace.sources.azure.tokens import SCOPE, Tokens, described


class Credential:
    """Issues tokens of an hour, and has the scopes of its requests."""

    def __init__(self) -> None:
        self.scopes: list[str] = []
        self.expires = int(time.time()) + 3_600

    def get_token(self, scope: str) -> SimpleNamespace:
        self.scopes.append(scope)
        return SimpleNamespace(token=f"token-{len(self.scopes)}", expires_on=self.expires)


@pytest.fixture
def credential(monkeypatch: pytest.MonkeyPatch) -> Credential:
    pytest.importorskip("azure.identity")
    credential = Credential()

    def create(tokens: Tokens, library: Any) -> Credential:
        del tokens, library
        return credential

    monkeypatch.setattr(Tokens, "_create", create)
    return credential


async def test_a_token_is_that_of_the_scope_with_the_time_when_it_expires(credential: Credential) -> None:
    tokens = Tokens(Identity(), "https://servicebus.azure.net/.default")
    assert await tokens.token() == ("token-1", credential.expires)
    assert await tokens.header() == "Bearer token-1", "it is used until shortly before it expires"
    tokens.drop()
    assert await tokens.token() == ("token-2", credential.expires)
    assert credential.scopes == ["https://servicebus.azure.net/.default"] * 2


async def test_the_scope_is_that_of_storage_accounts_without_another(credential: Credential) -> None:
    assert await Tokens(Identity()).header() == "Bearer token-1"
    assert credential.scopes == [SCOPE]


def test_errors_of_credentials_are_told_from_those_of_the_network() -> None:
    errors = pytest.importorskip("azure.core.exceptions")
    refused = described(errors.ClientAuthenticationError("invalid_client: the secret has expired.\nTrace ID: 1"))
    assert (type(refused), str(refused)) == (UpstreamError, "No access token of Azure: invalid_client: the secret has expired.")
    assert "azure://" in str(refused.hint)
    assert type(described(errors.ServiceRequestError("away"))) is StreamError
    assert type(described(ValueError("An invalid tenant ID"))) is UpstreamError
    assert str(described(StreamError("As it is."))) == "As it is."


def test_of_many_credentials_the_reason_of_the_machine_is_named() -> None:
    errors = pytest.importorskip("azure.core.exceptions")
    text = "DefaultAzureCredential failed.\nAttempted:\n\tEnvironmentCredential: none\n\tManagedIdentityCredential: no identity.\nMore"
    assert str(described(errors.ClientAuthenticationError(text))) == "No access token of Azure: ManagedIdentityCredential: no identity."
