"""Bodies within and beyond their limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from headrace.receiver.body import MAX_BODY_BYTES, BodyReader, Receive, SenderDisconnected
from headrace.sources.http.rejection import RequestRejected


def receiving(*chunks: bytes, end: bool = True, disconnect: bool = False) -> Receive:
    """Return the `receive` of a request. Without an end, it waits for ever after the last chunk."""
    messages: Iterable[Any] = iter([{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks])

    async def receive() -> Any:
        for message in messages:
            return message
        if disconnect:
            return {"type": "http.disconnect"}
        if not end:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive


async def test_chunks_are_one_body() -> None:
    async with BodyReader().reading({}, receiving(b"a", b"", b"bc")) as body:
        assert body == b"abc"


@pytest.mark.parametrize("announced", [str(MAX_BODY_BYTES + 1), "9" * 5_000])
async def test_an_announced_body_that_is_too_large_is_not_read(announced: str) -> None:
    with pytest.raises(RequestRejected) as rejected:
        async with BodyReader().reading({"content-length": announced}, receiving(end=False)):
            pass
    assert rejected.value.status == 413


async def test_a_body_without_a_length_is_counted() -> None:
    with pytest.raises(RequestRejected) as rejected:
        async with BodyReader().reading({}, receiving(b"x" * MAX_BODY_BYTES, b"x", end=False)):
            pass
    assert rejected.value.status == 413


async def test_a_slow_body_is_rejected() -> None:
    with pytest.raises(RequestRejected) as rejected:
        async with BodyReader(seconds=0.01).reading({}, receiving(b"x", end=False)):
            pass
    assert rejected.value.status == 408


async def test_a_sender_that_disconnects_is_noticed() -> None:
    with pytest.raises(SenderDisconnected):
        async with BodyReader().reading({}, receiving(b"x", disconnect=True)):
            pass


async def test_the_bodies_in_progress_have_a_limit_together() -> None:
    bodies = BodyReader(max_bodies_bytes=10)
    async with bodies.reading({}, receiving(b"x" * 6)):
        with pytest.raises(RequestRejected) as rejected:
            async with bodies.reading({}, receiving(b"x" * 6)):
                pass
        assert rejected.value.status == 503
        async with bodies.reading({}, receiving(b"x" * 4)):
            pass
    async with bodies.reading({}, receiving(b"x" * 10)) as body:
        assert len(body) == 10


async def test_the_messages_of_requests_in_progress_count_as_bodies_do() -> None:
    bodies = BodyReader(max_bodies_bytes=10)
    async with bodies.reading({}, receiving(b"x" * 2)):
        with bodies.holding(8):
            with pytest.raises(RequestRejected) as rejected, bodies.holding(1):
                pass
            assert (rejected.value.status, rejected.value.slug) == (503, "unavailable")
        with bodies.holding(8):
            pass
