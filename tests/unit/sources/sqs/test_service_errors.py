from __future__ import annotations

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.sqs.service_errors import described, failure_text, is_receipt_invalid


class ServiceError(Exception):
    def __init__(self, code: str) -> None:
        self.response = {"Error": {"Code": code, "Message": "No way."}}


class EndpointConnectionError(Exception):
    pass


@pytest.mark.parametrize("code", ["AccessDenied", "ExpiredToken", "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"])
def test_errors_that_stay_have_what_to_do(code: str) -> None:
    error = described("Queue 'q' cannot be read", ServiceError(code))
    assert isinstance(error, UpstreamError)
    assert str(error) == f"Queue 'q' cannot be read: No way. ({code})."
    assert error.hint


@pytest.mark.parametrize("failure", [EndpointConnectionError("gone"), ConnectionResetError("gone"), TimeoutError()])
def test_a_service_that_does_not_answer_is_named(failure: Exception) -> None:
    error = described("It cannot be read", failure)
    assert isinstance(error, StreamError)
    assert "does not answer" in str(error)
    assert error.hint


def test_other_errors_may_pass() -> None:
    assert isinstance(described("It cannot be read", ServiceError("RequestThrottled")), StreamError)


def test_only_receipts_that_the_sender_must_not_repeat_are_invalid() -> None:
    assert is_receipt_invalid({"Code": "ReceiptHandleIsInvalid", "SenderFault": True})
    assert not is_receipt_invalid({"Code": "ReceiptHandleIsInvalid", "SenderFault": False})
    assert not is_receipt_invalid({"Code": "InternalError", "SenderFault": False})
    assert not is_receipt_invalid({"Code": "AccessDenied", "SenderFault": True})
    assert failure_text({"Code": "InternalError", "Message": "again"}) == "InternalError: again"
