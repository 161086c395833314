"""The quick parser of listings returns what the parser of the client library returns."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest

from headrace.sources.objects.s3.listing_parser import parse_listing

CONTENTS = (
    "<Contents><Key>{key}</Key><LastModified>2026-11-23T16:00:00.000Z</LastModified><ETag>&quot;{etag}&quot;</ETag><Size>{size}</Size>"
    "<Owner><ID>x</ID></Owner><StorageClass>STANDARD</StorageClass></Contents>"
)


def library_parse(body: bytes) -> Any:
    session = pytest.importorskip("botocore.session").get_session()
    client = session.create_client("s3", region_name="x", aws_access_key_id="x", aws_secret_access_key="x")
    shape = client.meta.service_model.operation_model("ListObjectsV2").output_shape
    parser = pytest.importorskip("botocore.parsers").create_parser("rest-xml")
    return parser.parse({"body": body, "headers": {}, "status_code": 200}, shape)


@pytest.mark.parametrize("namespace", ["", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'])
def test_it_returns_the_same_objects(namespace: str) -> None:
    keys = ["a", "a%2Fb", "ü", "<&>", " x ", "\U0001f600"]
    contents = "".join(CONTENTS.format(key=escape(key), etag=f"{number:032x}", size=number) for number, key in enumerate(keys))
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult{namespace}><IsTruncated>true</IsTruncated>'
        f"<NextContinuationToken>t/+=</NextContinuationToken><EncodingType>url</EncodingType>{contents}</ListBucketResult>"
    ).encode()
    parsed, expected = parse_listing(body), library_parse(body)
    assert [one["Key"] for one in parsed["Contents"]] == [one["Key"] for one in expected["Contents"]] == keys
    assert [one["ETag"] for one in parsed["Contents"]] == [one["ETag"] for one in expected["Contents"]]
    assert [int(one["Size"]) for one in parsed["Contents"]] == [one["Size"] for one in expected["Contents"]]
    assert (parsed["NextContinuationToken"], parsed["EncodingType"]) == (expected["NextContinuationToken"], expected["EncodingType"])
    assert (parsed["IsTruncated"] == "true") is expected["IsTruncated"]


def test_a_listing_without_objects_has_none() -> None:
    assert parse_listing(b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")["Contents"] == []


@pytest.mark.parametrize("body", [b"<html></html>", b"<Error><Code>SlowDown</Code></Error>", b"<ListBucketResults/>"])
def test_another_answer_is_an_error_and_not_an_empty_listing(body: bytes) -> None:
    with pytest.raises(ElementTree.ParseError, match="not a listing"):
        parse_listing(body)
