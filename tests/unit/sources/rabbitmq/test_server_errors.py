"""Errors of the server and the client: what failed, and what to do."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.rabbitmq.server_errors import described, is_in_use


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (RuntimeError("NOT_FOUND - no queue 'q' in vhost '/'"), UpstreamError, "the queue does not exist"),
        (RuntimeError("ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'x'"), UpstreamError, "no permission"),
        (OSError("ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."), UpstreamError, "refuses the login"),
        (OSError("Expected one of ['Connection.OpenOk'], got Close"), UpstreamError, "refuses the virtual host"),
        (RuntimeError("PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out"), StreamError, "within the consumer timeout"),
        (OSError(111, "Connect call failed"), StreamError, "does not answer"),
        (TimeoutError(), StreamError, "does not answer: no answer in time"),
        (RuntimeError("INTERNAL_ERROR"), StreamError, "failed: INTERNAL_ERROR"),
    ],
)
def test_an_error_names_its_reason(error: Exception, kind: type[HeadraceError], reason: str) -> None:
    found = described("It failed", error)
    assert type(found) is kind
    assert reason in str(found)
    assert str(found).startswith("It failed: ")


def test_an_error_of_headrace_stays() -> None:
    error = StreamError("It ended.")
    assert described("It failed", error) is error


def test_a_refused_exclusive_consumer_is_recognised() -> None:
    assert is_in_use(RuntimeError("ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"))
    assert not is_in_use(RuntimeError("ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'x'"))
