from __future__ import annotations

import re

import pytest

from headrace.errors import UpstreamError
from headrace.sources.sqs.client import SERVICE
from headrace.sources.sqs.service_errors import REJECTED, described, failure_text, is_receipt_invalid


class ServiceError(Exception):
    def __init__(self, code: str) -> None:
        self.response = {"Error": {"Code": code, "Message": "No way."}}


@pytest.mark.parametrize("code", ["AccessDenied", "ExpiredToken", "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"])
def test_errors_that_stay_have_what_to_do(code: str) -> None:
    error = described("Queue 'q' cannot be read", ServiceError(code))
    assert isinstance(error, UpstreamError)
    assert str(error) == f"Queue 'q' cannot be read: No way. ({code})."
    assert error.hint


def test_no_hint_is_about_s3() -> None:
    for hint in (*REJECTED.values(), SERVICE.hint):
        assert not re.search("bucket|s3|object", hint, re.IGNORECASE), hint


def test_only_receipts_that_the_sender_must_not_repeat_are_invalid() -> None:
    assert is_receipt_invalid({"Code": "ReceiptHandleIsInvalid", "SenderFault": True})
    assert not is_receipt_invalid({"Code": "ReceiptHandleIsInvalid", "SenderFault": False})
    assert not is_receipt_invalid({"Code": "InternalError", "SenderFault": False})
    assert not is_receipt_invalid({"Code": "AccessDenied", "SenderFault": True})
    assert failure_text({"Code": "InternalError", "Message": "again"}) == "InternalError: again"
