"""Connections to object stores: their test, and what a wrong one says."""

from __future__ import annotations

import os
import re

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.connections.probes import probe_connection
from support.processes.broker_server import connection_variable
from support.sources.objects import TestBucket

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("objects"), pytest.mark.timeout(120)]

ON_GCS = pytest.mark.parametrize("bucket", ["gs"], indirect=True)
ON_S3 = pytest.mark.parametrize("bucket", ["s3"], indirect=True)


@ON_S3
def test_the_test_of_a_connection_counts_the_buckets(bucket: TestBucket) -> None:
    line = probe_connection(parse_connection("s3", os.environ[connection_variable(bucket.connection)]))
    assert line.startswith(f"S3 at http://{bucket.server.address}: ")
    assert line.endswith(" buckets")


@ON_S3
@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("s3://test:wrong@{address}?region=us-east-1&scheme=http", UpstreamError, "SignatureDoesNotMatch"),
        ("s3://test:testtest@127.0.0.1:1?region=us-east-1&scheme=http", StreamError, "does not answer"),
        ("s3://test@{address}?region=us-east-1", UpstreamError, "half of the credentials"),
        ("s3://{address}?regoin=us-east-1", UpstreamError, "unknown settings: regoin"),
        ("s3://?region=us-east-1&profile=no-such-profile", UpstreamError, "cannot be used"),
    ],
)
async def test_a_wrong_connection_says_why(bucket: TestBucket, text: str, kind: type[HeadraceError], message: str) -> None:
    text = text.format(address=bucket.server.address)
    os.environ[connection_variable(bucket.connection)] = text
    producer = bucket.producer()
    with pytest.raises(kind) as opened:
        await anext(aiter(producer.open_stream()))
    await producer.aclose()
    assert message in str(opened.value)


@ON_S3
def test_a_connection_that_is_refused_says_why(bucket: TestBucket) -> None:
    text = f"s3://test:wrong@{bucket.server.address}?region=us-east-1&scheme=http"
    with pytest.raises(UpstreamError, match="SignatureDoesNotMatch") as refused:
        probe_connection(parse_connection("s3", text))
    assert "Correct the credentials" in str(refused.value.hint)


@ON_GCS
def test_the_test_of_a_connection_to_google_counts_the_buckets(bucket: TestBucket) -> None:
    connection = parse_connection("gcs", bucket.server.connection)
    assert re.fullmatch(rf"Google Cloud Storage at http://{bucket.server.address}: \d+ buckets", probe_connection(connection))


@ON_GCS
@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("gcs://127.0.0.1:1?scheme=http&anonymous=true", StreamError, "does not answer"),
        ("gcs://{address}?scheme=http", UpstreamError, "credentials without TLS"),
        ("gcs://{address}?key_file=/no/such/key.json", UpstreamError, "No such file"),
        ("gcs://{address}?key_file=/dev/null", UpstreamError, "not valid"),
        ("gcs://{address}?anonymous=true&regoin=x", UpstreamError, "unknown settings: regoin"),
        ("s3://{address}?scheme=http", UpstreamError, "of kind 's3', not 'gcs'"),
    ],
)
async def test_a_wrong_connection_to_google_says_why(bucket: TestBucket, text: str, kind: type[HeadraceError], message: str) -> None:
    os.environ[connection_variable(bucket.connection)] = text.format(address=bucket.server.address)
    producer = bucket.producer()
    with pytest.raises(kind) as opened:
        await anext(aiter(producer.open_stream()))
    await producer.aclose()
    assert message in str(opened.value)
