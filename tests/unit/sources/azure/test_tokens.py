"""Errors of the library for tokens."""

from __future__ import annotations

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.azure.tokens import described


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
