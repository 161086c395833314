"""Fixtures of the tests on Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.processes.redis import RedisServer, require, shared
from support.sources.redis import RedisStream


@pytest.fixture(params=["redis", pytest.param("valkey", marks=pytest.mark.slow)])
def stream(request: pytest.FixtureRequest) -> Iterator[RedisStream]:
    """Return a stream on the shared server of Redis, then of Valkey."""
    stream = RedisStream(shared(request.param))
    yield stream
    stream.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[RedisServer]:
    """Return a server that the tests of a module may kill."""
    require("redis")
    server = RedisServer("redis")
    yield server
    server.close()


@pytest.fixture
def own_stream(own_server: RedisServer) -> Iterator[RedisStream]:
    """Return a stream on the server of the module."""
    stream = RedisStream(own_server)
    yield stream
    stream.close()
