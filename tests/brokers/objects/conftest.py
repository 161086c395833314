"""Fixtures of the tests on buckets of S3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.processes.versitygw import VersityGateway, require, shared
from support.sources.objects import TestBucket


@pytest.fixture
def bucket() -> Iterator[TestBucket]:
    """Return a bucket of the shared server."""
    bucket = TestBucket(shared())
    yield bucket
    bucket.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[VersityGateway]:
    """Return a server that the tests of a module may kill."""
    require()
    server = VersityGateway()
    yield server
    server.close()
