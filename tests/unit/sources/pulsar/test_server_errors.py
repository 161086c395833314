from __future__ import annotations

from types import SimpleNamespace

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.pulsar.server_errors import BUSY, described, rejection, result_of


class ClientError(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._name = name

    def error(self) -> SimpleNamespace:
        return SimpleNamespace(name=self._name)


@pytest.mark.parametrize("name", ["AuthenticationError", "AuthorizationError", "TopicNotFound"])
def test_an_error_that_stays_says_what_to_do(name: str) -> None:
    error = described("Topic t cannot be read", ClientError(name))
    assert isinstance(error, UpstreamError)
    assert error.hint
    assert str(error).startswith("Topic t cannot be read: ")


@pytest.mark.parametrize("name", [BUSY, "Timeout", "ConnectError", "ServiceUnitNotReady", "UnknownError"])
def test_an_error_that_may_pass_can_be_repeated(name: str) -> None:
    error = described("Topic t cannot be read", ClientError(name))
    assert type(error) is StreamError
    assert error.hint
    assert name in str(error)


def test_another_exception_keeps_its_text_and_an_error_of_headrace_stays() -> None:
    assert str(described("It failed", OSError("no  route"))) == "It failed: no route."
    own = StreamError("no")
    assert described("It failed", own) is own
    assert result_of(OSError()) is None


@pytest.mark.parametrize(
    ("status", "kind"), [(401, UpstreamError), (403, UpstreamError), (404, UpstreamError), (409, StreamError), (503, StreamError)]
)
def test_a_response_of_the_admin_api_is_described(status: int, kind: type) -> None:
    error = rejection("It failed", status, b'{"reason":"Because. "}')
    assert type(error) is kind
    assert str(error) == f"It failed: the admin API answers {status}: Because."
    assert str(rejection("It failed", status, b"<html>")) == f"It failed: the admin API answers {status}."
