"""A shared stream as a filter in a trigger process reads it."""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import structlog

from headrace.core.values.text import describe_text
from headrace.errors import StreamError
from headrace.triggerer.context import EventOrigin, trace_of
from headrace.triggerer.ipc.trigger_messages import Next, Raw, Rejected, Step
from headrace.triggers.event import current_stream
from headrace.triggers.masking import mask
from headrace.triggers.packed import PackedEvent, PackedMessage, PackedSubclass
from headrace.triggers.raw_event import RawEvent

log = structlog.get_logger(__name__)


class Delivered(NamedTuple):
    """A raw event with its lane and position. `error`: it could not be unpickled."""

    raw: Any
    lane: str
    position: int | None
    error: Exception | None = None


def pack(raw: Any, lane: str, position: int | None) -> Raw:
    """Return the form of a raw event for a trigger process. Raises errors of pickle."""
    if type(raw) is RawEvent:
        return Raw(raw.data, raw.lane, raw.position, False)
    if isinstance(raw, PackedSubclass | PackedMessage):
        return Raw(raw.packed, lane, position, True)
    if isinstance(raw, PackedEvent):
        return Raw(raw.pickled(), lane, position, True)
    return Raw(pickle.dumps(raw, pickle.HIGHEST_PROTOCOL), lane, position, True)


def unpack(raw: Raw) -> Delivered:
    """Return the raw event."""
    if not raw.pickled:
        position = raw.position or 0
        return Delivered(RawEvent(raw.data, raw.lane, position), raw.lane, raw.position)
    try:
        return Delivered(pickle.loads(raw.data), raw.lane, raw.position)  # noqa: S301 - the runner, which runs the same code, wrote it
    except Exception as error:  # a user's class may raise anything
        return Delivered(None, raw.lane, raw.position, error)


class RemoteStream:
    """Raw events of one turn of one filter, as an async iterator. Requesting the next one finishes the current one.

    `say` sends steps to the runner, in order. `generation` is that of the filter's current raw event.
    """

    __slots__ = (
        "_at",
        "_closed",
        "_items",
        "_next_generation",
        "_pulling",
        "_rejected",
        "_requested",
        "_say",
        "_waiter",
        "acks",
        "generation",
        "name",
        "turn",
    )

    def __init__(self, turn: int, name: str, say: Callable[[Step], None], *, acks: bool) -> None:
        self.turn = turn
        self.name = name
        self.acks = acks
        self.generation = 0
        self._next_generation = 0
        self._say = say
        self._items: deque[Delivered] = deque()
        self._at: Delivered | None = None
        self._requested = False
        self._pulling = False
        self._rejected = False
        self._closed: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def closed_with(self) -> Exception | None:
        """The error with which the runner closed the stream, or None."""
        return self._closed

    def origin(self) -> EventOrigin | None:
        """Return the origin of the filter's current raw event, or None if it has none. Any thread may call it."""
        at = self._at
        return None if at is None else EventOrigin(self.name, at.lane, at.position, trace_of(at.raw))

    def deliver(self, item: Delivered) -> None:
        """Queue one more raw event for the filter."""
        self._items.append(item)
        self._wake()

    def reset(self, generation: int) -> None:
        """Drop the raw events that the filter has not begun. The next one counts as requested."""
        self._next_generation = generation
        if self._at is None:
            self.generation = generation
        # Otherwise the filter processes a withdrawn raw event: until it requests the next one, its steps are of the
        # older generation.
        self._items.clear()
        self._requested = True

    def close(self, error: Exception) -> None:
        """From now on, raise `error` in the filter instead of delivering raw events."""
        if self._closed is None:
            self._closed = error
            self._wake()

    def reject(self, reason: str | None) -> bool:
        """Reject the filter's current raw event; return whether there is one."""
        if not self.acks or self._closed is not None or self._at is None or self._rejected:
            return False
        self._rejected = True
        # The reason comes from a user, and must reach the runner whatever it contains.
        self._say(Rejected(self.turn, self.generation, None if reason is None else mask(describe_text(reason))))
        return True

    def __aiter__(self) -> RemoteStream:
        self._enter()
        return self

    def __anext__(self) -> Awaitable[Any]:
        # Not a coroutine, so that it runs in the filter's own context even if `wait_for` awaits it in another task.
        self._enter()
        return self._next()

    def _enter(self) -> None:
        if current_stream.get() is not self:
            current_stream.set(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _next(self) -> Any:
        if self._pulling:
            raise StreamError("Two tasks pull from the shared stream of one trigger at once.")
        self._at = None
        self._rejected = False
        self.generation = self._next_generation
        if not self._requested and self._closed is None:
            self._requested = True
            self._say(Next(self.turn, self.generation))
        while self._closed is None:
            if self._items:
                self._requested = False
                self._at = self._items.popleft()
                if self._at.error is not None:
                    raise self._at.error
                return self._at.raw
            self._pulling = True
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._pulling = False
                self._waiter = None
        raise self._closed
