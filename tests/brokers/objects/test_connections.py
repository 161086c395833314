"""Connections to S3: their test, and what a wrong one says."""

from __future__ import annotations

import os

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.connection_probes import probe_connection
from support.processes.broker_server import connection_variable
from support.sources.objects import TestBucket

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("objects"), pytest.mark.timeout(120)]


def test_the_test_of_a_connection_counts_the_buckets(bucket: TestBucket) -> None:
    line = probe_connection(parse_connection("s3", os.environ[connection_variable(bucket.connection)]))
    assert line.startswith(f"S3 at http://{bucket.server.address}: ")
    assert line.endswith(" buckets")


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


def test_a_connection_that_is_refused_says_why(bucket: TestBucket) -> None:
    text = f"s3://test:wrong@{bucket.server.address}?region=us-east-1&scheme=http"
    with pytest.raises(UpstreamError, match="SignatureDoesNotMatch") as refused:
        probe_connection(parse_connection("s3", text))
    assert "Correct the credentials" in str(refused.value.hint)
