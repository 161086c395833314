"""Fixtures of the tests on buckets: each test runs on every kind of server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headrace.sources.objects.gcs import client as gcs_client
from support.processes import azurite, fake_gcs, versitygw
from support.processes.azurite import Azurite
from support.processes.fake_gcs import FakeGcs
from support.processes.versitygw import VersityGateway
from support.sources.objects import ObjectServer, TestBucket

SHARED: dict[str, Callable[[], ObjectServer]] = {"s3": versitygw.shared, "gs": fake_gcs.shared, "az": azurite.shared}


def _marks(name: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a server. What only Google's API has runs on its server in `make test-all`: listings, connections, writes."""
    return [pytest.mark.xdist_group(name), *([pytest.mark.exhaustive] if name == "gs" else [])]


EACH_SERVER = [pytest.param(name, marks=_marks(name)) for name in SHARED]


@pytest.fixture(params=EACH_SERVER)
def bucket(request: pytest.FixtureRequest) -> Iterator[TestBucket]:
    """Return a bucket of a shared server."""
    bucket = TestBucket(SHARED[request.param]())
    yield bucket
    bucket.close()


@pytest.fixture(scope="module", params=EACH_SERVER)
def own_server(request: pytest.FixtureRequest) -> Iterator[ObjectServer]:
    """Return a server that the tests of a module may kill."""
    server: ObjectServer
    if request.param == "s3":
        versitygw.require()
        server = VersityGateway()
    elif request.param == "gs":
        fake_gcs.require()
        server = FakeGcs("filesystem")
    else:
        azurite.require()
        server = Azurite("files")
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _quick_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server accepts any number of writes in a second."""
    monkeypatch.setattr(gcs_client, "WRITE_INTERVAL_SECONDS", 0.0)
