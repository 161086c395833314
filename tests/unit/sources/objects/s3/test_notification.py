"""Notifications of S3, and of servers that leave fields out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import MalformedEvent
from headrace.sources.objects.notified import Notified
from headrace.sources.objects.s3.notification import parse_notification


def record(**fields: Any) -> bytes:
    described = {"bucket": {"name": "b"}, "object": {"key": "in/a", "size": 8, "eTag": '"e"'} | fields}
    return json.dumps({"eventName": "ObjectCreated:Put", "eventTime": "2026-11-23T12:00:00.000Z", "s3": described}).encode()


def test_a_complete_record() -> None:
    parsed = parse_notification(record(key="in/a+b%2B%C3%A9", versionId="v1"))
    assert parsed == Notified("b", "in/a b+é", True, "e", 8, 1_795_435_200_000, "v1")


@pytest.mark.parametrize("fields", [{"size": None}, {"size": 0}, {"size": -5}, {"eTag": None}, {"eTag": ""}, {"eTag": '""'}])
def test_without_a_size_or_an_etag_the_object_is_requested(fields: dict[str, Any]) -> None:
    assert parse_notification(record(**fields)).etag == ""


@pytest.mark.parametrize("left_out", ["size", "eTag"])
def test_a_field_that_is_left_out_is_requested(left_out: str) -> None:
    decoded = json.loads(record())
    del decoded["s3"]["object"][left_out]
    assert parse_notification(json.dumps(decoded).encode()).etag == ""


def test_an_empty_version_is_none() -> None:
    assert parse_notification(record(versionId="")).version is None


@pytest.mark.parametrize("depth", [1_200, 200_000])
def test_nested_json_is_malformed(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    with pytest.raises(MalformedEvent, match="not a notification of S3"):
        parse_notification(b'{"x":' + nested + b"}")


@pytest.mark.parametrize("key", ["%ff", "in/%ED%A0%80", "%C3"])
def test_a_key_that_is_no_text_is_malformed(key: str) -> None:
    with pytest.raises(MalformedEvent, match="not a notification of S3"):
        parse_notification(record(key=key))


def test_a_key_with_half_a_pair_is_malformed() -> None:
    with pytest.raises(MalformedEvent, match="not a notification of S3"):
        parse_notification(record(key="\ud800"))
