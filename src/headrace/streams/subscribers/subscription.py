"""One subscriber's end of a shared stream: what its filter iterates over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

import structlog

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import PendingEvent, Subscriber
from headrace.errors import StreamError
from headrace.streams.delivery_names import DeliveryIds
from headrace.streams.sink import Origin
from headrace.streams.subscribers.backlog_reader import Ahead, BacklogReader
from headrace.triggers.event import current_stream

log = structlog.get_logger(__name__)


class SubscriptionContext(NamedTuple):
    """What ties a mailbox to its stream.

    `changed` is called when a raw event may have been resolved, or a full queue is no longer full; `refuse` rejects what a reader is at;
    `acks`: there is a broker to advance.
    """

    ledger: Ledger
    clock: Callable[[], float]
    changed: Callable[[], None]
    refuse: Callable[[Subscriber, str | None], bool]
    acks: bool
    delivery_ids: DeliveryIds


class Subscription:
    """An async iterator of raw events for one filter. To pull the next is to be done with the one before.

    The queue itself is on the ledger's books; here is the waiting. With a `drain` the backlog comes first. After `close` the filter gets
    the error, from any await it is in.
    """

    __slots__ = (
        "_acks",
        "_at",
        "_bind",
        "_changed",
        "_clock",
        "_closed",
        "_delivery_ids",
        "_drain",
        "_ledger",
        "_listener",
        "_origin",
        "_pulling",
        "_raw",
        "_reader",
        "_refuse",
        "_waiter",
        "trigger_id",
    )

    def __init__(self, reader: Subscriber, ties: SubscriptionContext, drain: BacklogReader | None = None) -> None:
        self.trigger_id = reader.trigger_id
        self._ledger, self._clock, self._changed, self._refuse, self._acks, self._delivery_ids = ties
        self._reader = reader
        self._bind = self._ledger.bind
        self._drain = drain
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
        """Whether the filter gets no more."""
        return self._closed is not None

    @property
    def error(self) -> Exception | None:
        """What the filter gets instead of raw events, or None if it is open."""
        return self._closed

    @property
    def origin(self) -> Origin | None:
        """The place of the raw event the filter is at, also after `close`, or None if it is at none.

        One object for each time that a raw event comes to the filter, so that it can be told whether it is still the same time.
        """
        if self._origin is None and self._at is not None:
            self._origin = Origin(self._at.lane.name, self._at.position, self._delivery_ids.of(self._at))
        return self._origin

    @property
    def at(self) -> tuple[Origin, Any] | None:
        """The place of the raw event the filter is at, and that itself, also after `close`, or None if it is at none.

        Any thread may ask.
        """
        entry = self._at
        return None if entry is None else (Origin(entry.lane.name, entry.position), self._raw)

    def __aiter__(self) -> Subscription:
        self._enter()
        return self

    def __anext__(self) -> Awaitable[Any]:
        # Not itself a coroutine, so that it runs in the filter's own context even where `wait_for` runs the waiting in a task of its own.
        if current_stream.get() is not self:
            current_stream.set(self)
        return self._next()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` when `take` may return an event, and when the subscription closes."""
        self._listener = listener

    def take(self) -> PendingEvent | None:
        """Be done with the raw event before and go on to the next. Return None if nothing waits, or it is closed. It does not wait."""
        if self._closed is not None:
            return None
        entry = self._begin()
        self._raw = None if entry is None else entry.raw
        self._pulling = entry is None
        return entry

    def ahead(self, begin: int, end: int) -> Iterable[Ahead]:
        """Return what comes after the raw event the reader is at, from the `begin`th to before the `end`th, as far as it is known."""
        reader, drain = self._reader, self._drain
        if reader.held is not None or self._closed is not None:
            return ()
        if reader.live:
            return [Ahead(entry, entry.raw, entry.lane.name, entry.position) for entry in islice(reader.queue, begin, end)]
        return () if drain is None else drain.ahead(begin, end)

    @property
    def is_draining(self) -> bool:
        """Whether the backlog has to be asked for more before `take` finds something."""
        return self._drain is not None and not self._reader.live and self._closed is None

    async def fetch(self) -> bool:
        """Ask the backlog for more; say whether `take` may find something now. Else the listener is called when it may."""
        drain = self._drain
        if drain is None:
            return True
        page = await drain.fetch()
        return self._closed is not None or drain.take(page)

    def requeue(self) -> None:
        """Give the reader its present raw event again first: it did not fail on it."""
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
        """Raise `error` in the filter instead of giving it raw events, from now on."""
        if self._closed is None:
            self._closed = error
            self.wake()

    def bind(self) -> int | None:
        """Return the seq of the trigger event that the filter has just yielded, or None if there is nothing to confirm."""
        return self._bind(self._reader) if self._acks and self._closed is None else None

    def refuse(self, reason: str | None) -> bool:
        """Reject the raw event that the filter is at, and say whether it is at one."""
        if not self._acks or self._closed is not None or not self._refuse(self._reader, reason):
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
        if entry is None and not reader.live and self._drain is not None:
            entry = self._drain.begin()
        if ledger.changed:
            self._changed()
        self._at = entry
        self._origin = None
        return entry

    async def _wait(self) -> None:
        """Return when there may be something to begin with."""
        drain = self._drain
        if drain is not None and not self._reader.live:
            page = await drain.fetch()
            if self._closed is not None or drain.take(page):
                return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
