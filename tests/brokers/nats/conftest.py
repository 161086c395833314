"""Fixtures of the tests on streams of NATS JetStream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from support.processes.nats import NatsServer, Version, require, shared
from support.sources.nats import MakeStream, NatsStream


def _marks(version: Version) -> list[pytest.MarkDecorator]:
    """Return the marks of a version. The contract and the tests that name it run on Debian's in `make test-all`."""
    return [pytest.mark.xdist_group(version), *([pytest.mark.exhaustive] if version == "package" else [])]


@pytest.fixture(params=[pytest.param(version, marks=_marks(version)) for version in get_args(Version)])
def version(request: pytest.FixtureRequest) -> Version:
    """Return the version of the server: of Go's module proxy, and of Debian's package."""
    chosen: Version = request.param
    return chosen


@pytest.fixture
def make_stream(version: Version) -> Iterator[MakeStream]:
    """Return the function that creates a stream on the shared server of the version."""
    streams: list[NatsStream] = []

    def make(server: NatsServer | None = None, **config: Any) -> NatsStream:
        streams.append(NatsStream(server or shared(version), **config))
        return streams[-1]

    yield make
    for stream in streams:
        stream.close()


@pytest.fixture
def stream(make_stream: MakeStream) -> NatsStream:
    """Return a stream with the default retention."""
    return make_stream()


@pytest.fixture
def own_server(version: Version) -> Iterator[NatsServer]:
    """Return a server that a test may kill."""
    require(version)
    server = NatsServer(version)
    yield server
    server.close()
