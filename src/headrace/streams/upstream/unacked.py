"""Adapter of streams without acks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from headrace.core.ledger.outcome import AdvanceItem
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.upstream import SharedStreamProducer


class UnackedProducer(SharedStreamProducer):
    """Yields the raw events of `open_shared_stream`. There is no broker to advance."""

    def __init__(self, trigger: type[BaseEventTrigger], kwargs: dict[str, Any]) -> None:
        self._trigger = trigger
        self._kwargs = kwargs

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        """Yield the raw events."""
        stream = self._trigger.open_shared_stream(self._kwargs)
        try:
            async for raw in stream:
                yield raw, None
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Do nothing."""
        del batch
