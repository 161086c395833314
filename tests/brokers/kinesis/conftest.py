"""Fixtures of the tests on streams of Kinesis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.processes.moto import shared
from support.sources.kinesis import KinesisStream, MakeStream


@pytest.fixture
def make_stream() -> Iterator[MakeStream]:
    """Return the function that creates a stream on the shared server."""
    streams: list[KinesisStream] = []

    def make(shards: int = 1) -> KinesisStream:
        streams.append(KinesisStream(shared(), shards))
        return streams[-1]

    yield make
    for stream in streams:
        stream.close()


@pytest.fixture
def stream(make_stream: MakeStream) -> KinesisStream:
    """Return a stream with one shard."""
    return make_stream()
