"""Errors that all services of AWS have."""

from __future__ import annotations

from typing import Final

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.aws.service_errors import AWAY_HINT, REJECTED, code_of, described


class ServiceError(Exception):
    def __init__(self, code: str) -> None:
        self.response = {"Error": {"Code": code, "Message": "No way."}}


class EndpointConnectionError(Exception):
    pass


OWN: Final = {**REJECTED, "NoSuchThing": "Create the thing."}


@pytest.mark.parametrize(("code", "hint"), [("ExpiredToken", REJECTED["ExpiredToken"]), ("NoSuchThing", "Create the thing.")])
def test_errors_that_stay_have_what_to_do(code: str, hint: str) -> None:
    error = described("The thing cannot be read", ServiceError(code), OWN)
    assert isinstance(error, UpstreamError)
    assert str(error) == f"The thing cannot be read: No way. ({code})."
    assert error.hint == hint


@pytest.mark.parametrize("failure", [EndpointConnectionError("gone"), ConnectionResetError("gone"), TimeoutError()])
def test_a_service_that_does_not_answer_is_named(failure: Exception) -> None:
    error = described("It cannot be read", failure, OWN)
    assert isinstance(error, StreamError)
    assert "does not answer" in str(error)
    assert error.hint == AWAY_HINT


def test_other_errors_may_pass() -> None:
    assert isinstance(described("It cannot be read", ServiceError("RequestThrottled"), OWN), StreamError)


def test_an_error_of_headrace_stays_as_it_is() -> None:
    error = StreamError("It has ended.")
    assert described("It cannot be read", error, OWN) is error


def test_the_code_is_that_of_the_service_or_the_class() -> None:
    assert code_of(ServiceError("ExpiredToken")) == "ExpiredToken"
    assert code_of(EndpointConnectionError("gone")) == "EndpointConnectionError"


def test_no_hint_names_a_service() -> None:
    for hint in (*REJECTED.values(), AWAY_HINT):
        assert not {"sqs", "s3", "queue", "bucket", "object"} & set(hint.lower().replace(":", " ").split()), hint
