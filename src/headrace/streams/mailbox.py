"""One subscriber's end of a shared stream: what its filter iterates over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import structlog

from headrace.core.ledger import Ledger
from headrace.core.obligation import Entry, Reader
from headrace.errors import StreamError
from headrace.streams.delivery import DeliveryIds
from headrace.streams.drain import Drain
from headrace.streams.matched import Origin
from headrace.triggers.reject import current_stream

log = structlog.get_logger(__name__)


class Ties(NamedTuple):
    """What ties a mailbox to its stream.

    `changed` is called when a raw event may have been resolved, or a full queue is no longer full; `refuse` rejects what a reader is at;
    `acks`: there is a broker to advance.
    """

    ledger: Ledger
    clock: Callable[[], float]
    changed: Callable[[], None]
    refuse: Callable[[Reader, str | None], bool]
    acks: bool
    delivery_ids: DeliveryIds


class Mailbox:
    """An async iterator of raw events for one filter. To pull the next is to be done with the one before.

    The queue itself is on the ledger's books; here is the waiting. With a `drain` the backlog comes first. After `close` the filter gets
    the error, from any await it is in.
    """

    def __init__(self, reader: Reader, ties: Ties, drain: Drain | None = None) -> None:
        self.trigger_id = reader.trigger_id
        self._ledger, self._clock, self._changed, self._refuse, self._acks, self._delivery_ids = ties
        self._reader = reader
        self._bind = self._ledger.bind
        self._drain = drain
        self._pulling = False
        self._waiter: asyncio.Future[None] | None = None
        self._closed: Exception | None = None
        self._at: Entry | None = None
        self._raw: Any = None
        self._origin: Origin | None = None

    @property
    def reader(self) -> Reader:
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
        """What the filter gets instead of raw events; None: it is open."""
        return self._closed

    @property
    def origin(self) -> Origin | None:
        """The place of the raw event the filter is at, also after `close`; None: it is at none.

        One object for each time that a raw event comes to the filter, so that it can be told whether it is still the same time.
        """
        if self._origin is None and self._at is not None:
            self._origin = Origin(self._at.lane.name, self._at.position, self._delivery_ids.of(self._at))
        return self._origin

    @property
    def at(self) -> tuple[Origin, Any] | None:
        """The place of the raw event the filter is at, and that itself, also after `close`; None: it is at none. Any thread may ask."""
        entry = self._at
        return None if entry is None else (Origin(entry.lane.name, entry.position), self._raw)

    def __aiter__(self) -> Mailbox:
        self._enter()
        return self

    def __anext__(self) -> Awaitable[Any]:
        # Not itself a coroutine, so that it runs in the filter's own context even where `wait_for` runs the waiting in a task of its own.
        if current_stream.get() is not self:
            current_stream.set(self)
        return self._next()

    def wake(self) -> None:
        """Let the filter, if it waits, look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self, error: Exception) -> None:
        """Let the filter get `error` instead of raw events, from now on."""
        if self._closed is None:
            self._closed = error
            self.wake()

    def bind(self) -> int | None:
        """Return the seq of the trigger event that the filter has just yielded; None: there is nothing to confirm."""
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
        ledger, reader = self._ledger, self._reader
        if self._pulling:
            raise StreamError("Two tasks pull from the shared stream of one trigger at once.")
        while self._closed is None:
            # Whoever makes something ready wakes the pump: what was ready before needs no second call.
            had_room, was_idle = not ledger.full, not ledger.ready
            ledger.now = self._clock()
            entry = ledger.begin(reader)
            if entry is None and not reader.live and self._drain is not None:
                entry = self._drain.begin()
            if not had_room or ledger.settling or (was_idle and ledger.ready):
                self._changed()
            self._at, self._origin = entry, None
            if entry is not None:
                raw = entry.raw
                if entry.copy is not None:
                    raw = entry.copy(raw)
                self._raw = raw
                return raw
            self._pulling = True
            try:
                await self._wait()
            finally:
                self._pulling = False
        raise self._closed

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
