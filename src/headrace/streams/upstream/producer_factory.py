"""How a stream gets its producer: at once, or from another process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, NamedTuple, TypeAlias

from headrace.streams.upstream.unacked import UnackedProducer
from headrace.triggers.base import BaseEventTrigger, has_acks
from headrace.triggers.upstream import SharedStreamProducer

Making: TypeAlias = SharedStreamProducer | Coroutine[Any, Any, SharedStreamProducer]
"""A producer, or the coroutine that returns it."""


class StreamOpener(NamedTuple):
    """The class of a trigger and its keyword arguments: all that it takes to open its stream, where the trigger itself is elsewhere.

    `workload` is its `RunTrigger` as JSON, where it has one.
    """

    kind: type[BaseEventTrigger]
    kwargs: dict[str, Any]
    workload: bytes = b""


MakeProducer: TypeAlias = Callable[[Hashable, StreamOpener], Making]
"""Makes the producer of the stream with this key."""


def make_producer(key: Hashable, opener: StreamOpener) -> SharedStreamProducer:
    """Return the producer of a stream, which runs in this process."""
    del key
    kind, kwargs, _ = opener
    return kind.create_shared_stream_producer(kwargs) if has_acks(kind) else UnackedProducer(kind, kwargs)


async def made_before(making: Coroutine[Any, Any, SharedStreamProducer], over: asyncio.Future[None]) -> SharedStreamProducer | None:
    """Return the producer, or None if the stream is `over` before there is one. Raises what `making` raises."""
    task = asyncio.create_task(making, name="headrace producer")
    try:
        await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
    return task.result() if task.done() and not task.cancelled() else None
