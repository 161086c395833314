"""Closing of producers: their errors are logged, and one that does not return in time is left behind."""

from __future__ import annotations

import asyncio

import structlog

from headrace.core.values.text import describe_error
from headrace.streams.limits.close_grace import CloseDeadline, LeftBehind, ends_in, is_cancelled
from headrace.triggers.upstream import SharedStreamProducer

log = structlog.get_logger(__name__)


async def close(producer: SharedStreamProducer, stream: str, grace: CloseDeadline, left_behind: LeftBehind) -> None:
    """Close a producer within the rest of the close timeout, at least a tenth of it."""
    closing = asyncio.create_task(_closed(producer, stream), name="headrace close")
    await asyncio.sleep(0)  # `aclose` is called in any case
    if await ends_in(closing, max(grace.left(), grace.seconds / 10)):
        return
    closing.cancel()
    left_behind.add(closing, stream, "aclose of the producer")


async def _closed(producer: SharedStreamProducer, stream: str) -> None:
    try:
        await producer.aclose()
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        log.warning("Producer raised CancelledError as it was closed", stream=stream)
    except BaseException as error:  # a producer may raise anything, also SystemExit
        log.warning("Producer does not close", stream=stream, error=describe_error(error))
