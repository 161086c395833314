"""Errors of S3 have hints about S3."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.objects.bucket import Missing
from headrace.sources.objects.location import StoredObject
from headrace.sources.objects.s3.client import REJECTED, SERVICE, S3Bucket, described


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


class RefusingClient:
    def __init__(self, code: str) -> None:
        self._code = code

    async def get_object(self, **arguments: Any) -> Any:
        raise ServiceError(self._code)


@pytest.mark.parametrize("code", ["NoSuchKey", "NoSuchVersion", "PreconditionFailed", "InvalidRange"])
async def test_a_deleted_object_or_version_is_missing(code: str) -> None:
    bucket = S3Bucket(RefusingClient(code), AsyncExitStack(), "b")
    with pytest.raises(Missing):
        await bucket.get_range(StoredObject("a", "e", 8, 0, "v1"), 0, 8)


class DescribingClient:
    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}

    async def head_object(self, **arguments: Any) -> dict[str, Any]:
        self.arguments = arguments
        return {"ETag": '"e"', "ContentLength": 8, "LastModified": datetime(2026, 11, 23, 12, tzinfo=UTC)}


@pytest.mark.parametrize(("version", "more"), [(None, {}), ("v1", {"VersionId": "v1"})])
async def test_the_state_of_a_version_is_requested(version: str | None, more: dict[str, Any]) -> None:
    client = DescribingClient()
    stored = await S3Bucket(client, AsyncExitStack(), "b").head("a", version)
    assert client.arguments == {"Bucket": "b", "Key": "a"} | more
    assert stored == StoredObject("a", "e", 8, 1_795_435_200_000, version)
