"""Creation of producers, in this process or in another one."""

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
    """The class of a trigger and its keyword arguments: sufficient to open its stream while the trigger is in another process.

    `workload` is its `RunTrigger` as JSON, if it has one.
    """

    kind: type[BaseEventTrigger]
    kwargs: dict[str, Any]
    workload: bytes = b""


MakeProducer: TypeAlias = Callable[[Hashable, StreamOpener], Making]
"""Creates the producer of the stream with this key."""


def make_producer(key: Hashable, opener: StreamOpener) -> SharedStreamProducer:
    """Return a producer that runs in this process."""
    del key
    kind, kwargs, _ = opener
    return kind.create_shared_stream_producer(kwargs) if has_acks(kind) else UnackedProducer(kind, kwargs)


async def create_before(making: Coroutine[Any, Any, SharedStreamProducer], over: asyncio.Future[None]) -> SharedStreamProducer | None:
    """Return the producer, or None if the stream is `over` first. Raises the errors of `making`."""
    task = asyncio.create_task(making, name="headrace producer")
    try:
        await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
    return task.result() if task.done() and not task.cancelled() else None
