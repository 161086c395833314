"""Proxy of a user's producer in the runner. The producer runs in another process, which may end at any time.

Memory: items that have arrived, and items that the process may read ahead, count towards the budget. The full
read-ahead window is granted only while half of the budget is free. Otherwise the first window is granted, when the
stream has taken all items and may read.

Invariant: a call here ends when the call in the process has ended, or the process has. Cancelling a call cancels it in
the process and waits for its end. So a stream treats a producer that does not end the same way wherever the producer
runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

from headrace.core.ledger.outcome import AdvanceItem
from headrace.core.memory_budget import MemoryBudget
from headrace.errors import StreamEnded, StreamError, StreamMoved
from headrace.triggerer.exception_text import Failure
from headrace.triggerer.ipc.packing import pack_stored, size_of, unpack, unpack_stored
from headrace.triggerer.ipc.producer_messages import (
    Advance,
    CallEnded,
    CancelCall,
    CloseProducer,
    DecodeAgain,
    Item,
    LanesAnswered,
    OpenProducer,
    QueryLanes,
    ReadingEnded,
    ReadOn,
    StopReading,
    Yielded,
)
from headrace.triggerer.ipc.trigger_messages import Command, Step
from headrace.triggerer.process_pools.turn import Batch, ProcessEnded, TurnEnd, error_of
from headrace.triggerer.user_process.hosted_producer import (
    FIRST_AHEAD_BYTES,
    FIRST_AHEAD_EVENTS,
    ITEM_BYTES,
    MAX_AHEAD_BYTES,
    MAX_AHEAD_EVENTS,
)
from headrace.triggers.raw_event import Message
from headrace.triggers.upstream import SharedStreamProducer


class RemoteLane:
    """A lane of a user's producer. Two lanes with the same name are different lanes."""

    __slots__ = ("committed", "end", "name", "number")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.end: int | Failure | None = None
        self.committed: int | Failure | None = None

    def __str__(self) -> str:
        return self.name


class Payload:
    """The runner's reference to a raw event's broker payload, which stays in the producer's process."""

    __slots__ = ("lane", "number", "position")

    def __init__(self, number: int, lane: RemoteLane | Failure, position: int | Failure | None) -> None:
        self.number = number
        self.lane = lane
        self.position = position


class Host(Protocol):
    """The process of a producer."""

    def send(self, command: Command) -> None:
        """Queue a command; commands are sent in order."""
        ...

    @property
    def is_blocked(self) -> bool:
        """Whether the process does not respond."""
        ...


class Hosts(Protocol):
    """Assigns processes to producers."""

    async def begin(self, producer: RemoteProducer) -> Host:
        """Assign a process and a turn number to a producer; return the process.

        If the stream's previous producer was moved out of a process, wait until that process has ended: it may still read the upstream.
        """
        ...

    def end(self, producer: RemoteProducer) -> None:
        """Remove a producer from its process."""
        ...

    def end_process(self, producer: RemoteProducer) -> None:
        """Kill the process of a producer. The other producers of the process restart in another one."""
        ...


class RemoteProducer(SharedStreamProducer):
    """The producer of `stream`, which the trigger class at `classpath` creates from `kwargs` (JSON)."""

    def __init__(self, stream: str, classpath: str, kwargs: bytes, hosts: Hosts, budget: MemoryBudget, *, acks: bool) -> None:
        self.stream = stream
        self.number = 0
        self.trigger_id = 0
        """The id that the shared heartbeat shows while the producer's code runs."""
        self._classpath = classpath
        self._kwargs = kwargs
        self._hosts = hosts
        self._acks = acks
        self._host: Host | None = None
        self._items: deque[Item] = deque()
        self._lanes: dict[int, RemoteLane] = {}
        self._budget = budget
        self._waiting_bytes = self._counted_bytes = 0
        # The part of the full window that is not granted to the process.
        self._withheld_events, self._withheld_bytes = MAX_AHEAD_EVENTS - FIRST_AHEAD_EVENTS, MAX_AHEAD_BYTES - FIRST_AHEAD_BYTES
        self._changed = asyncio.Event()
        self._ended: ReadingEnded | None = None
        self._lost: Exception | None = None
        self._last_call = 0
        self._calls: dict[int, asyncio.Future[CallEnded | None]] = {}
        self._queried_lanes: dict[int, None] = {}
        self._query_pending = False
        self._errors: dict[str, str] | Failure = {}
        self._unread: int | Failure | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the raw event that the code processes is known: it is not."""
        return False

    def fill(self, batch: Batch) -> None:
        """Add no raw events: producers receive none."""
        del batch

    async def open_stream(self) -> AsyncIterator[tuple[Any, Payload]]:
        """Yield the raw events of the producer."""
        self._host = await self._hosts.begin(self)
        self._send(OpenProducer(self.number, self.trigger_id, self.stream, self._classpath, self._kwargs))
        try:
            while True:
                while self._items:
                    yield self._take()
                self._read_on(is_needed=True)
                if self._lost is not None:
                    raise self._lost
                if (ended := self._ended) is not None:
                    break
                self._changed.clear()
                await self._changed.wait()
        finally:
            await self._stop_reading()
        if ended.cancelled:
            raise asyncio.CancelledError
        if ended.failure is not None:
            raise error_of(ended.failure)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Advance the broker past these raw events."""
        if not self._acks:
            return
        numbers = [item.broker_payload.number for item in batch]
        outcomes = [(one.acked, one.failed, one.rejected, one.spilled) for _, one in batch]
        await self._call(lambda call: Advance(self.number, call, numbers, outcomes))

    def get_advance_lane(self, broker_payload: Payload) -> Hashable:
        """Return the lane."""
        lane = broker_payload.lane
        if isinstance(lane, Failure):
            raise error_of(lane)
        return lane

    def get_position(self, broker_payload: Payload) -> int | None:
        """Return the position."""
        return _value(broker_payload.position)

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the last answer of the producer, and query it again."""
        if not isinstance(lane, RemoteLane):
            return None
        self._query(lane.number)
        return _value(lane.end)

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the last answer of the producer."""
        return _value(lane.committed) if isinstance(lane, RemoteLane) else None

    def get_unread(self) -> int | None:
        """Return the last answer of the producer, and the raw events of it that the stream has not taken. `get_errors` queries it again."""
        unread = _value(self._unread)
        return None if unread is None else unread + len(self._items)

    def get_errors(self) -> Mapping[str, str]:
        """Return the last answer of the producer, and query it again."""
        self._query(None)
        if isinstance(self._errors, Failure):
            raise error_of(self._errors)
        return self._errors

    async def decode_again(self, message: Message) -> Message:
        """Return the message as the process decodes it. Raises `ProcessEnded` if the producer's code blocked or ended the process."""
        text = pack_stored(message)
        call = self._begin_call(lambda call: DecodeAgain(self.number, call, text))
        try:
            await asyncio.wait((self._calls[call],))
            return unpack_stored(self._end_call(call).decoded or text)
        except StreamError:
            if isinstance(self._lost, ProcessEnded):
                raise self._lost from None
            raise
        finally:
            if self._calls.pop(call, None) is not None:  # cancelled: a process that blocks is not waited for
                self._send(CancelCall(self.number, call))

    async def aclose(self) -> None:
        """Close the producer, and release its process."""
        try:
            if self._host is not None and self._lost is None:
                await self._call(lambda call: CloseProducer(self.number, call))
        finally:
            self._count(0)
            if self._host is not None:
                self._hosts.end(self)

    def take(self, step: Step) -> None:
        """Handle a step of the process."""
        if isinstance(step, Yielded):
            for number, name in step.lanes.items():
                self._lanes[number] = RemoteLane(number, name)
            self._items.extend(step.items)
            self._waiting_bytes += sum(_size(item) for item in step.items)
            self._count(self._ahead_bytes)
            self._changed.set()
        elif isinstance(step, ReadingEnded):
            self._ended = step
            self._changed.set()
        elif isinstance(step, CallEnded):
            for number in step.released:
                self._lanes.pop(number, None)
            if (call := self._calls.get(step.call)) is not None and not call.done():
                call.set_result(step)
        elif isinstance(step, LanesAnswered):
            self._query_pending = False
            self._errors, self._unread = step.errors, step.unread
            for answer in step.lanes:
                if (lane := self._lanes.get(answer.lane)) is not None:
                    lane.end, lane.committed = answer.end, answer.committed

    def finish(self, end: TurnEnd) -> None:
        """End the turn: the process has ended, or the producer restarts in another one. Later calls do nothing."""
        if self._lost is None:
            begins_again = StreamMoved(f"The producer of {self.stream} begins again in another process.")
            self._lost = begins_again if end.error is None else end.error
            self._changed.set()
            for call in self._calls.values():
                if not call.done():
                    call.set_result(None)

    def _take(self) -> tuple[Any, Payload]:
        item = self._items.popleft()
        size = _size(item)
        self._waiting_bytes -= size
        self._withheld_events += 1
        self._withheld_bytes += size
        if 2 * self._withheld_events >= MAX_AHEAD_EVENTS or 2 * self._withheld_bytes >= MAX_AHEAD_BYTES:
            self._read_on(is_needed=False)
        lane = item.lane if isinstance(item.lane, Failure) else self._lanes[item.lane]
        return unpack(item.raw), Payload(item.number, lane, item.position)

    def _read_on(self, *, is_needed: bool) -> None:
        """Grant the process more to read. `is_needed`: the stream waits, and no item has arrived."""
        self._count(self._ahead_bytes)
        if self._budget.is_half_free:
            events, count = self._withheld_events, self._withheld_bytes
        elif is_needed:
            events = max(self._withheld_events - MAX_AHEAD_EVENTS + FIRST_AHEAD_EVENTS, 0)
            count = max(self._withheld_bytes - MAX_AHEAD_BYTES + FIRST_AHEAD_BYTES, 0)
        else:
            return
        if events or count:
            self._send(ReadOn(self.number, events, count))
            self._withheld_events -= events
            self._withheld_bytes -= count
            self._count(self._ahead_bytes)

    @property
    def _ahead_bytes(self) -> int:
        """Bytes that have arrived, or may arrive without another grant."""
        return max(self._waiting_bytes, MAX_AHEAD_BYTES - self._withheld_bytes)

    def _count(self, ahead: int) -> None:
        if change := ahead - self._counted_bytes:
            self._counted_bytes = ahead
            self._budget.change(change)

    async def _stop_reading(self) -> None:
        """Cancel reading in the process, and wait until it has ended."""
        if self._ended is None:
            if self._host is not None and self._host.is_blocked:
                self._hosts.end_process(self)  # a blocked process would not answer
            self._send(StopReading(self.number))
        while self._ended is None and self._lost is None:
            self._changed.clear()
            try:
                await self._changed.wait()
            except asyncio.CancelledError:  # send the cancellation again, and wait for the end of reading
                self._send(StopReading(self.number))
        self._items.clear()
        self._waiting_bytes = 0
        self._count(0)

    async def _call(self, command: Callable[[int], Command]) -> None:
        """Make a call in the process, and wait until it has ended. Raises the call's error."""
        call = self._begin_call(command)
        future = self._calls[call]
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError:  # cancel the call in the process, and wait for its end
                self._send(CancelCall(self.number, call))
        self._end_call(call)

    def _begin_call(self, command: Callable[[int], Command]) -> int:
        if self._lost is not None or self._host is None:
            raise self._process_lost()
        call = self._last_call = self._last_call + 1
        self._calls[call] = asyncio.get_running_loop().create_future()
        self._send(command(call))
        return call

    def _end_call(self, call: int) -> CallEnded:
        """Return the end of a call. Raises its error."""
        ended = self._calls.pop(call).result()
        if ended is None:
            raise self._process_lost()
        if ended.cancelled:
            raise asyncio.CancelledError
        if ended.failure is not None:
            error = error_of(ended.failure)
            if ended.failure.is_final:
                raise StreamEnded(ended.failure.message) from error
            raise error
        return ended

    def _process_lost(self) -> Exception:
        if isinstance(self._lost, StreamMoved):
            return self._lost
        return StreamError(f"The process of the producer ended: {self._lost or 'it was not started'}")

    def _query(self, lane: int | None) -> None:
        if self._host is None or self._lost is not None or self._query_pending:
            return
        if not self._queried_lanes:
            asyncio.get_running_loop().call_soon(self._send_query)
        self._queried_lanes[-1 if lane is None else lane] = None

    def _send_query(self) -> None:
        lanes = [lane for lane in self._queried_lanes if lane >= 0]
        self._queried_lanes.clear()
        self._query_pending = True
        self._send(QueryLanes(self.number, lanes))

    def _send(self, command: Command) -> None:
        if self._host is not None and self._lost is None:
            self._host.send(command)


def _size(item: Item) -> int:
    return size_of(item.raw) + ITEM_BYTES


def _value(value: int | Failure | None) -> int | None:
    if isinstance(value, Failure):
        raise error_of(value)
    return value
