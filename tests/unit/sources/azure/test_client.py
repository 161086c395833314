"""Answers of Azure Storage as errors of Headrace."""

from __future__ import annotations

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.azure.client import Answer, rejection
from headrace.sources.objects.azure.client import REJECTED


@pytest.mark.parametrize(
    ("status", "code", "kind", "hint"),
    [
        (403, "AuthenticationFailed", UpstreamError, "clock"),
        (403, "AuthorizationPermissionMismatch", UpstreamError, "Storage Blob Data Contributor"),
        (403, "AuthorizationFailure", UpstreamError, "network"),
        (403, "SomethingNew", UpstreamError, "network"),
        (401, "", UpstreamError, "credentials"),
        (404, "ContainerNotFound", UpstreamError, "creates no containers"),
        (409, "BlobImmutableDueToPolicy", UpstreamError, "state="),
        (409, "ContainerBeingDeleted", StreamError, ""),
        (412, "LeaseIdMissing", UpstreamError, "End the lease"),
        (429, "", StreamError, ""),
        (500, "OperationTimedOut", StreamError, ""),
        (503, "ServerBusy", StreamError, ""),
    ],
)
def test_a_refusal_says_what_to_do(status: int, code: str, kind: type[Exception], hint: str) -> None:
    body = b"\xef\xbb\xbf<?xml version='1.0' encoding='utf-8'?><Error><Code>x</Code><Message>No way.\nRequestId:1\nTime:2</Message></Error>"
    error = rejection("It failed", Answer(status, {"x-ms-error-code": code}, body), REJECTED)
    assert type(error) is kind
    assert str(error) == f"It failed: No way ({code or f'HTTP status {status}'})."
    assert hint in (error.hint or "")


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error": 1}', b"\xff", b"<Error/>"])
def test_an_answer_of_another_server_is_an_error_too(body: bytes) -> None:
    assert str(rejection("It failed", Answer(502, {}, body), {})) == "It failed: HTTP status 502."
