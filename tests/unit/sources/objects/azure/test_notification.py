"""Events of Event Grid that are malformed, or leave fields out."""

from __future__ import annotations

import json

import pytest

from headrace.errors import MalformedEvent
from headrace.sources.objects.azure.notification import parse_notification


@pytest.mark.parametrize("depth", [1_200, 200_000])
def test_nested_json_is_malformed(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    with pytest.raises(MalformedEvent, match="not an event about a blob"):
        parse_notification(b'{"x":' + nested + b"}")


def test_a_key_with_half_a_pair_is_malformed() -> None:
    subject = "/blobServices/default/containers/c/blobs/\ud800"
    with pytest.raises(MalformedEvent, match="not an event about a blob"):
        parse_notification(json.dumps({"subject": subject, "data": {}}).encode())


@pytest.mark.parametrize(("size", "etag"), [(5, "0x8D"), (0, ""), (-5, ""), (None, "")])
def test_a_blob_of_no_known_size_is_requested(size: int | None, etag: str) -> None:
    """With a hierarchical namespace, the first event of a blob can have the size 0."""
    event = {
        "eventType": "Microsoft.Storage.BlobCreated",
        "subject": "/blobServices/default/containers/c/blobs/in/a",
        "data": {"api": "PutBlob", "eTag": "0x8D", "contentLength": size},
    }
    assert parse_notification(json.dumps(event).encode()).etag == etag
