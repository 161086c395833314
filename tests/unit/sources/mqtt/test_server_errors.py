"""Reason codes of servers, and errors of the client."""

from __future__ import annotations

import ssl
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import HeadraceError, StreamError, UpstreamError, UpstreamFenced
from headrace.sources.mqtt.server_errors import described, rejected


class Reason:
    """A reason code as the client gives it."""

    def __init__(self, value: int, name: str) -> None:
        self.value = value
        self._name = name

    def __str__(self) -> str:
        return self._name


@pytest.mark.parametrize(
    ("value", "kind"),
    [(134, UpstreamError), (133, UpstreamError), (135, UpstreamError), (142, UpstreamFenced), (136, StreamError), (139, StreamError)],
)
def test_a_reason_code_is_permanent_or_not(value: int, kind: type[HeadraceError]) -> None:
    error = rejected("It failed", Reason(value, "Some reason"), SimpleNamespace(ReasonString="with\ndetails"))
    assert type(error) is kind
    assert str(error).startswith("It failed: ")
    if value != 142:
        assert str(error) == "It failed: some reason (with details)."
        assert error.hint


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ConnectionRefusedError(111, "refused"), StreamError, "It failed: the server does not answer: 111 refused."),
        (ssl.SSLCertVerificationError(1, "unknown authority"), UpstreamError, "not trusted: 1 unknown authority."),
        (ValueError("odd."), StreamError, "It failed: odd."),
        (KeyError(), StreamError, "It failed: KeyError."),
    ],
)
def test_an_error_of_the_client_is_described(error: Any, kind: type[HeadraceError], text: str) -> None:
    found = described("It failed", error)
    assert type(found) is kind
    assert str(found).endswith(text)
    assert described("again", found) is found
