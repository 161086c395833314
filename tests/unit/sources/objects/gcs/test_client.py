"""Answers of Google Cloud Storage as errors of Headrace."""

from __future__ import annotations

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.connections.rest_client import Answer
from headrace.sources.objects.gcs.client import rejection
from headrace.sources.objects.gcs.tokens import described


@pytest.mark.parametrize(
    ("status", "reason", "kind", "hint"),
    [
        (401, "authError", UpstreamError, "credentials"),
        (403, "forbidden", UpstreamError, "storage.objects.list"),
        (403, "userRateLimitExceeded", StreamError, ""),
        (404, "notFound", UpstreamError, "creates no buckets"),
        (429, "rateLimitExceeded", StreamError, ""),
        (503, "backendError", StreamError, ""),
    ],
)
def test_a_refusal_says_what_to_do(status: int, reason: str, kind: type[Exception], hint: str) -> None:
    body = b'{"error": {"code": %d, "message": "No way.", "errors": [{"reason": "%s"}]}}' % (status, reason.encode())
    error = rejection("Bucket 'b' cannot be listed", Answer(status, {}, body))
    assert type(error) is kind
    assert str(error) == f"Bucket 'b' cannot be listed: No way ({status})."
    assert hint in (error.hint or "")


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error": 1}', b"\xff"])
def test_an_answer_of_another_server_is_an_error_too(body: bytes) -> None:
    assert str(rejection("It failed", Answer(502, {}, body))) == "It failed: HTTP status 502."


def test_errors_of_credentials_are_told_from_those_of_the_network() -> None:
    errors = pytest.importorskip("google.auth.exceptions")
    skewed = errors.RefreshError("invalid_grant: Token must be a short-lived token", {})
    assert "clock" in str(described(skewed).hint)
    assert isinstance(described(skewed), UpstreamError)
    assert type(described(errors.TransportError("away"))) is StreamError
    assert type(described(errors.RefreshError("busy", retryable=True))) is StreamError
    assert "SECRET" not in str(described(ValueError("cannot load SECRET")))
