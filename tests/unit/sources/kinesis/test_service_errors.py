from __future__ import annotations

import re

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.kinesis.client import SERVICE
from headrace.sources.kinesis.service_errors import REJECTED, TABLE_REJECTED, Throttled, described, described_table


class ServiceError(Exception):
    def __init__(self, code: str) -> None:
        self.response = {"Error": {"Code": code, "Message": "No way."}}


@pytest.mark.parametrize("code", ["AccessDeniedException", "ExpiredTokenException", "ResourceNotFoundException", "KMSDisabledException"])
def test_errors_that_stay_have_what_to_do(code: str) -> None:
    error = described("Stream 's' cannot be read", ServiceError(code))
    assert isinstance(error, UpstreamError)
    assert str(error) == f"Stream 's' cannot be read: No way. ({code})."
    assert error.hint


@pytest.mark.parametrize("code", ["ProvisionedThroughputExceededException", "LimitExceededException", "ThrottlingException"])
def test_limits_of_the_service_pass(code: str) -> None:
    assert isinstance(described("Stream 's' cannot be read", ServiceError(code)), Throttled)
    assert isinstance(described_table("It cannot be stored", ServiceError(code), "t"), Throttled)


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "ValidationException"])
def test_a_table_that_does_not_fit_is_named_with_the_command_that_creates_it(code: str) -> None:
    error = described_table("It cannot be stored", ServiceError(code), "progress")
    assert isinstance(error, UpstreamError)
    assert "aws dynamodb create-table --table-name progress --billing-mode PAY_PER_REQUEST" in str(error.hint)


def test_other_errors_pass() -> None:
    error = described_table("It cannot be stored", ServiceError("InternalServerError"), "t")
    assert isinstance(error, StreamError)
    assert "dynamodb:UpdateItem" in str(described_table("x", ServiceError("AccessDeniedException"), "t").hint)


def test_no_hint_is_about_another_service() -> None:
    for hint in (*REJECTED.values(), *TABLE_REJECTED.values(), SERVICE.hint):
        assert not re.search("bucket|s3|queue|sqs", hint, re.IGNORECASE), hint
