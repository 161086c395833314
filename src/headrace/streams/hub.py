"""The shared streams of one process: which keys are polled just now, and by which group.

The law: a key is here only while its poll is alive and takes subscribers. Whoever ends a stream takes the key out first, in the same
synchronous step in which the subscribers are told, and waits afterwards; so one that comes a moment later gets a fresh stream.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
from typing import Any, Literal

from headrace.streams.matched import Malformed, Matched, WatchSink
from headrace.streams.statistics import StreamStatistics
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.watch import WatchTrigger

__all__ = ["Malformed", "Matched", "SharedStreamManager", "StreamStatistics", "WatchSink"]


class SharedStreamManager:
    """Gives every shared stream key one poll, however many triggers read it. Belongs to one event loop."""

    def __init__(
        self,
        *,
        max_subscriber_queue: int = 1024,
        max_outstanding: int = 8192,
        ack_timeout: float = 300.0,
        overflow: Literal["block", "fail"] = "block",
        clock: Callable[[], float] = time.monotonic,
        sink: WatchSink | None = None,
    ) -> None:
        raise NotImplementedError

    def subscribe(self, *, trigger_id: int, trigger: BaseEventTrigger, key: Hashable) -> AsyncIterator[Any]:
        """Return the raw events of the stream, from now on, for `trigger.filter_shared_stream`. Raises `StreamError`."""
        raise NotImplementedError

    def watch(self, *, triggers: Mapping[int, WatchTrigger], key: str) -> None:
        """Make `triggers` the declared watches of the stream, in the place of those it had. Raises `StreamError`."""
        raise NotImplementedError

    async def unsubscribe(self, trigger_id: int, key: Hashable) -> None:
        """Let a trigger leave, subscribed or declared; when the last one has left, the stream is stopped."""
        raise NotImplementedError

    def bind_pending_event(self, *, trigger_id: int, key: Hashable) -> int | None:
        """Tie a trigger event that was just yielded to the raw event the filter is at; None: there is nothing to confirm."""
        raise NotImplementedError

    def confirm_persisted(self, seqs: Iterable[int]) -> None:
        """Record that these are durable; those that are unknown, late or doubled change nothing."""
        raise NotImplementedError

    def mark_rejected(self, seq: int) -> None:
        """Let `seq`, once it is confirmed, count as rejected: what is durable is a dead letter."""
        raise NotImplementedError

    async def stop_all(self) -> None:
        """Stop every stream: what is resolved is advanced, the rest is left to redelivery."""
        raise NotImplementedError

    def keys(self) -> tuple[Hashable, ...]:
        """Return the keys of the live streams."""
        raise NotImplementedError

    def statistics(self, key: Hashable) -> StreamStatistics:
        """Return what the stream has done; all zero for a key never seen."""
        raise NotImplementedError
