"""The subscription of one trigger: the iterator that its filter reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

import structlog

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import PendingEvent, Subscriber
from headrace.errors import StreamError
from headrace.streams.sink import Origin
from headrace.streams.subscribers.backlog_reader import Ahead, BacklogReader
from headrace.streams.subscribers.raw_id import former_stream, origin_id
from headrace.triggers.event import current_stream

log = structlog.get_logger(__name__)


class SubscriptionContext(NamedTuple):
    """The parts of a stream that its subscriptions use.

    `changed` is called when a raw event may have been resolved, or a full queue is no longer full. `reject` rejects the open raw event of a
    reader. With `acks` there is a broker to advance.
    """

    ledger: Ledger
    clock: Callable[[], float]
    changed: Callable[[], None]
    reject: Callable[[Subscriber, str | None], bool]
    acks: bool


class Subscription:
    """An async iterator of raw events for one filter. Pulling the next one finishes the one before.

    The ledger has the queue; this class waits. With a `backlog`, the backlog is read first. After `close`, the filter gets the error, also
    while it waits.
    """

    __slots__ = (
        "_acks",
        "_at",
        "_backlog",
        "_bind",
        "_changed",
        "_clock",
        "_closed",
        "_ledger",
        "_listener",
        "_origin",
        "_pulling",
        "_raw",
        "_reader",
        "_reject",
        "_waiter",
        "trigger_id",
    )

    def __init__(self, reader: Subscriber, context: SubscriptionContext, backlog: BacklogReader | None = None) -> None:
        self.trigger_id = reader.trigger_id
        self._ledger, self._clock, self._changed, self._reject, self._acks = context
        self._reader = reader
        self._bind = self._ledger.bind
        self._backlog = backlog
        self._pulling = False
        self._listener: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._closed: Exception | None = None
        self._at: PendingEvent | None = None
        self._raw: Any = None
        self._origin: Origin | None = None

    @property
    def reader(self) -> Subscriber:
        """The subscriber in the ledger."""
        return self._reader

    @property
    def is_pulling(self) -> bool:
        """Whether the filter waits for the next raw event."""
        return self._pulling

    @property
    def is_closed(self) -> bool:
        """Whether the subscription is closed."""
        return self._closed is not None

    @property
    def error(self) -> Exception | None:
        """The error that the filter gets instead of raw events, or None if the subscription is open."""
        return self._closed

    @property
    def origin(self) -> Origin | None:
        """The origin of the open raw event, also after `close`, or None if there is none.

        Each delivery of a raw event to the filter has its own object, so that deliveries can be compared by identity.
        """
        if self._origin is None and self._at is not None:
            self._origin = Origin(self._at.lane.name, self._at.position, origin_id(self._at), former_stream(self._at))
        return self._origin

    @property
    def at(self) -> tuple[Origin, Any] | None:
        """The origin of the open raw event and the raw event, also after `close`, or None if there is none. Thread-safe."""
        entry = self._at
        return None if entry is None else (Origin(entry.lane.name, entry.position, stream=former_stream(entry)), self._raw)

    def __aiter__(self) -> Subscription:
        self._enter()
        return self

    def __anext__(self) -> Awaitable[Any]:
        # Not a coroutine function, so that it runs in the filter's own context even if `wait_for` awaits the result in another task.
        if current_stream.get() is not self:
            current_stream.set(self)
        return self._next()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` when `take` may return an event, and when the subscription closes."""
        self._listener = listener

    def take(self) -> PendingEvent | None:
        """Finish the open raw event and return the next one, without waiting. Return None if there is none, or it is closed."""
        if self._closed is not None:
            return None
        entry = self._begin()
        self._raw = None if entry is None else entry.raw
        self._pulling = entry is None
        return entry

    def ahead(self, begin: int, end: int) -> Iterable[Ahead]:
        """Return the raw events after the open one, from the `begin`th up to the `end`th, as far as they are known."""
        reader, backlog = self._reader, self._backlog
        if reader.held is not None or self._closed is not None:
            return ()
        if reader.live:
            return [Ahead(entry, entry.raw, entry.lane.name, entry.position) for entry in islice(reader.queue, begin, end)]
        return () if backlog is None else backlog.ahead(begin, end)

    @property
    def reads_backlog(self) -> bool:
        """Whether the next page of the backlog must be fetched before `take` can return an event."""
        return self._backlog is not None and not self._reader.live and self._closed is None

    async def fetch(self) -> bool:
        """Fetch the next page of the backlog. Return whether `take` may return an event now; else the listener is called when it may."""
        backlog = self._backlog
        if backlog is None:
            return True
        page = await backlog.fetch()
        return self._closed is not None or backlog.take(page)

    def requeue(self) -> None:
        """Close the open raw event unanswered, without a failure. The reader gets it again first."""
        if self._closed is None:
            self._ledger.requeue(self._reader)
            self._at, self._origin = None, None

    def wake(self) -> None:
        """Wake the filter if it waits."""
        if self._listener is not None:
            self._listener()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self, error: Exception) -> None:
        """Raise `error` in the filter from now on, instead of returning raw events."""
        if self._closed is None:
            self._closed = error
            self.wake()

    def bind(self) -> int | None:
        """Return the seq of the trigger event that the filter has just yielded, or None if there is nothing to confirm."""
        return self._bind(self._reader) if self._acks and self._closed is None else None

    def reject(self, reason: str | None) -> bool:
        """Reject the open raw event, and return whether there is one."""
        if not self._acks or self._closed is not None or not self._reject(self._reader, reason):
            return False
        log.info("Raw event rejected", trigger_id=self.trigger_id, reason=reason)
        self._changed()
        return True

    def _enter(self) -> None:
        if current_stream.get() is not self:
            current_stream.set(self)

    async def _next(self) -> Any:
        if self._pulling:
            raise StreamError("Two tasks pull from the shared stream of one trigger at once.")
        while self._closed is None:
            entry = self._begin()
            if entry is not None:
                raw, copy = entry.raw, entry.copy
                if copy is not None:
                    raw = copy(raw)
                self._raw = raw
                return raw
            self._raw = None
            self._pulling = True
            try:
                await self._wait()
            finally:
                self._pulling = False
        raise self._closed

    def _begin(self) -> PendingEvent | None:
        ledger, reader = self._ledger, self._reader
        ledger.now = self._clock()
        entry = ledger.begin(reader)
        if entry is None and not reader.live and self._backlog is not None:
            entry = self._backlog.begin()
        if ledger.changed:
            self._changed()
        self._at = entry
        self._origin = None
        return entry

    async def _wait(self) -> None:
        """Wait until there may be an entry to begin."""
        backlog = self._backlog
        if backlog is not None and not self._reader.live:
            page = await backlog.fetch()
            if self._closed is not None or backlog.take(page):
                return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
