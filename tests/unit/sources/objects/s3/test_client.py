"""Errors of S3 have hints about S3."""

from __future__ import annotations

import re

import pytest

from headrace.errors import UpstreamError
from headrace.sources.objects.s3.client import REJECTED, SERVICE, described


class ServiceError(Exception):
    def __init__(self, code: str) -> None:
        self.response = {"Error": {"Code": code, "Message": "No way."}}


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("AccessDenied", "s3:ListBucket on the bucket"),
        ("KMS.AccessDeniedException", "s3:ListBucket on the bucket"),
        ("NoSuchBucket", "Headrace creates no buckets"),
        ("NoRegionError", "s3://?region=eu-west-1"),
        ("ExpiredToken", "new credentials"),
    ],
)
def test_errors_that_stay_have_what_to_do(code: str, hint: str) -> None:
    error = described("Bucket 'b' cannot be listed", ServiceError(code))
    assert isinstance(error, UpstreamError)
    assert str(error) == f"Bucket 'b' cannot be listed: No way. ({code})."
    assert hint in (error.hint or "")


def test_no_hint_is_about_sqs() -> None:
    for hint in (*REJECTED.values(), SERVICE.hint):
        assert not re.search("queue|sqs", hint, re.IGNORECASE), hint
