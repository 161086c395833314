"""Errors of the client and the server: which another attempt may change, and what to do about the others."""

from __future__ import annotations

import ssl

import pytest

from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.nats.service_errors import ApiError, described


@pytest.mark.parametrize(
    ("error", "kind", "hint"),
    [
        (ApiError({"code": 404, "err_code": 10059, "description": "stream not found"}), UpstreamError, "Create the stream"),
        (ApiError({"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}), StreamError, None),
        (ApiError({"code": 503, "err_code": 10039, "description": "JetStream not enabled for account"}), UpstreamError, "Enable JetStream"),
        (ApiError({"code": 400, "err_code": 10121, "description": "max ack pending exceeds"}), UpstreamError, "Raise the limit"),
        (ApiError({}), UpstreamError, "Correct the arguments"),
        (RuntimeError("nats: 'Authorization Violation'"), UpstreamError, "credentials"),
        (RuntimeError('nats: Permissions Violation for Publish to "$JS.API"'), UpstreamError, "Allow this user"),
        (ssl.SSLError("certificate verify failed"), UpstreamError, "ca_file"),
        (ConnectionRefusedError("Connect call failed"), StreamError, "Is the server running?"),
        (TimeoutError(), StreamError, "Is the server running?"),
    ],
)
def test_errors(error: Exception, kind: type[HeadraceError], hint: str | None) -> None:
    result = described("It failed", error)
    assert type(result) is kind
    assert str(result).startswith("It failed: ")
    assert (hint or "") in (result.hint or "")


def test_an_error_of_headrace_stays() -> None:
    error = StreamError("It failed.")
    assert described("Else", error) is error
