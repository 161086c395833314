"""One user's producer in its own process: reads ahead as far as granted, and holds the broker payloads until they are advanced.

Invariant: each raw event has a number, under which its broker payload is held until it is advanced. A lane has a number
while it has unadvanced raw events. All users' code runs in tasks that the shared heartbeat shows, or under
`SharedHeartbeat.at`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextvars import Context
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import structlog

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.core.values.text import clean_text, describe_error, describe_value, lane_name
from headrace.errors import StreamError
from headrace.streams.fan_out import position_of
from headrace.streams.statistics_snapshot import MAX_SECONDS, checked_position, checked_unread, unreadable
from headrace.streams.upstream.poll import POLL_YIELD_INTERVAL, presentable
from headrace.streams.upstream.producer_factory import StreamOpener, make_producer
from headrace.triggerer.context import TriggerContext
from headrace.triggerer.exception_text import Failure, failure
from headrace.triggerer.ipc.packing import Text, pack, pack_stored, size_of, unpack_stored
from headrace.triggerer.ipc.producer_messages import (
    Advance,
    CallEnded,
    DecodeAgain,
    Item,
    LaneAnswer,
    LanesAnswered,
    OpenProducer,
    ReadingEnded,
    Yielded,
)
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat, TrackedCoroutine
from headrace.triggerer.ipc.trigger_messages import Step
from headrace.triggerer.user_process.loader import import_trigger
from headrace.triggers.base import BaseEventTrigger, has_acks
from headrace.triggers.masking import mask
from headrace.triggers.upstream import SharedStreamProducer, name_connection

MAX_AHEAD_EVENTS: Final = 512
"""Raw events that a producer may read ahead of the runner."""
MAX_AHEAD_BYTES: Final = 1024 * 1024
FIRST_AHEAD_EVENTS: Final = 64
"""Raw events that it may read ahead before the runner grants more."""
FIRST_AHEAD_BYTES: Final = 32 * 1024
ITEM_BYTES: Final = 64
"""Estimated size of a raw event's fields beside its content."""
CLOSE_SECONDS: Final = 10.0
"""Time limit for closing a stream that is not read any more."""
_FLUSH_BYTES: Final = 256 * 1024

T = TypeVar("T")

log = structlog.get_logger(__name__)


class _UnadvancedEvent(NamedTuple):
    """The broker payload of a raw event, and the number of its lane or None."""

    payload: Any
    lane: int | None


class HostedProducer:
    """Executes the commands of one turn. `say` sends steps to the runner."""

    def __init__(
        self, opening: OpenProducer, running: TriggerContext, context: Context, say: Callable[[Step], None], heartbeat: SharedHeartbeat
    ) -> None:
        self._opening = opening
        self._turn = opening.turn
        self._running = running
        self._context = context
        self._say = say
        self._heartbeat = heartbeat
        self._producer: SharedStreamProducer | None = None
        self._acks = False
        self._next_number = 0
        self._unadvanced: dict[int, _UnadvancedEvent] = {}
        self._lane_numbers: dict[Hashable, int] = {}
        self._lanes: dict[int, Hashable] = {}
        self._left: Counter[int] = Counter()
        self._events, self._bytes = FIRST_AHEAD_EVENTS, FIRST_AHEAD_BYTES
        self._may_read = asyncio.Event()
        self._items: list[Item] = []
        self._new_lanes: dict[int, str] = {}
        self._size = 0
        self._reading: asyncio.Task[Failure | None] | None = None
        self._calls: dict[int, asyncio.Task[Failure | None]] = {}
        self._decoded: dict[int, Text] = {}

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """The tasks that run the user's code."""
        return {*self._calls.values(), *(() if self._reading is None else (self._reading,))}

    def start(self) -> None:
        """Create the producer and read."""
        self._reading = self._task(self._read())
        self._reading.add_done_callback(self._read_ended)

    def read_on(self, events: int, count: int) -> None:
        """Allow the producer to read this much more."""
        self._events += events
        self._bytes += count
        self._may_read.set()

    def stop_reading(self) -> None:
        """Cancel reading, without waiting for its end."""
        if self._reading is not None:
            self._reading.cancel()

    def advance(self, command: Advance) -> None:
        """Advance the broker past these raw events."""
        self._call(command.call, self._advance(command), command.numbers)

    def close(self, call: int, closed: Callable[[], object]) -> None:
        """Close the producer; `closed` is called when the call has ended."""
        self._call(call, self._close())
        self._calls[call].add_done_callback(lambda _: closed())

    def decode_again(self, command: DecodeAgain) -> None:
        """Decode a malformed message of a backlog again."""
        self._call(command.call, self._decode_again(command))

    def cancel(self, call: int) -> None:
        """Cancel a call, without waiting for its end."""
        if (task := self._calls.get(call)) is not None:
            task.cancel()

    def answer(self, lanes: list[int]) -> None:
        """Report the positions of these lanes, as many as the time limit allows, the read errors and the number of unread messages."""
        producer, until = self._producer, perf_counter() + MAX_SECONDS
        if producer is None:
            self._say(LanesAnswered(self._turn, [], {}))
            return
        answers: list[LaneAnswer] = []
        for number in lanes:
            if number in self._lanes:
                lane = self._lanes[number]
                end = self._call_safely(partial(checked_position, producer.get_lane_end, "get_lane_end", lane))
                committed = self._call_safely(partial(checked_position, producer.get_committed, "get_committed", lane))
                answers.append(LaneAnswer(number, end, committed))
            if perf_counter() > until:
                break
        errors = self._call_safely(partial(unreadable, producer))
        self._say(LanesAnswered(self._turn, answers, errors, self._call_safely(partial(checked_unread, producer))))

    def _call_safely(self, call: Callable[[], T]) -> T | Failure:
        try:
            with self._heartbeat.at(self._running.trigger_id):
                return call()
        except BaseException as error:  # a producer may raise anything
            return failure(error)

    def _task(self, work: Coroutine[Any, Any, Failure | None]) -> asyncio.Task[Failure | None]:
        return asyncio.Task(TrackedCoroutine(work, self._heartbeat, self._running), name=self._opening.stream, context=self._context)

    async def _read(self) -> Failure | None:
        """Read until the stream ends. Return its failure, or None."""
        try:
            producer = self._producer = self._create_producer()
            stream = producer.open_stream()
            try:
                await self._follow(stream)
            finally:
                await self._close_stream(stream)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a producer may raise anything, including SystemExit
            presented = presentable(error)
            name_connection(presented, self._producer)
            return failure(presented)
        return None

    def _create_producer(self) -> SharedStreamProducer:
        opening = self._opening
        kind = import_trigger(opening.classpath, f"The producer of {opening.stream}")
        if not issubclass(kind, BaseEventTrigger):
            raise StreamError(f"{opening.classpath} has no shared stream.")
        producer = make_producer(opening.stream, StreamOpener(kind, msgspec.json.decode(opening.kwargs)))
        if not isinstance(producer, SharedStreamProducer):
            raise StreamError(f"The producer is {describe_value(producer)[:200]}, not a SharedStreamProducer.")
        self._acks = has_acks(kind)
        return producer

    async def _follow(self, stream: AsyncIterator[tuple[Any, Any]]) -> None:
        read = 0
        async for item in stream:
            try:
                raw, payload = item
            except Exception as error:
                raise StreamError(f"The producer yielded {describe_value(item)[:200]}, not (raw_event, broker_payload).") from error
            self._yielded(raw, payload)
            read += 1
            if self._events <= 0 or self._bytes <= 0:
                del item, raw, payload  # the wait may be long, and the message large
                self._flush()
                while self._events <= 0 or self._bytes <= 0:
                    self._may_read.clear()
                    await self._may_read.wait()
            elif not read % POLL_YIELD_INTERVAL:
                await asyncio.sleep(0)

    def _yielded(self, raw: Any, payload: Any) -> None:
        number, self._next_number = self._next_number, self._next_number + 1
        lane, name = self._lane(payload)
        position = None if isinstance(lane, Failure) else self._position(raw, payload)
        packed = pack(raw, name, position if isinstance(position, int) else None)
        if self._acks:
            known = None if isinstance(lane, Failure) else lane
            self._unadvanced[number] = _UnadvancedEvent(payload, known)
            if known is not None:
                self._left[known] += 1
        size = size_of(packed) + ITEM_BYTES
        self._events -= 1
        self._bytes -= size
        self._size += size
        self._items.append(Item(number, lane, position, packed))
        if len(self._items) == 1:
            asyncio.get_running_loop().call_soon(self._flush)
        elif self._size > _FLUSH_BYTES:
            self._flush()

    def _lane(self, payload: Any) -> tuple[int | Failure, str]:
        """Return the number of a raw event's lane, or the failure, and the lane's name if it is new."""
        producer = self._producer
        if producer is None:
            raise StreamError("There is no producer.")
        try:
            lane = producer.get_advance_lane(payload)
            number = self._lane_numbers.get(lane)
            if number is not None and number in self._lanes:
                return number, ""
            name = lane_name(lane)
            number = self._lane_numbers[lane] = self._next_number
        except BaseException as error:  # a producer may raise anything, including SystemExit; it fails this raw event
            return failure(error), ""
        self._lanes[number] = lane
        self._new_lanes[number] = name
        return number, name

    def _position(self, raw: Any, payload: Any) -> int | Failure | None:
        producer = self._producer
        try:
            return None if producer is None else position_of(producer.get_position(payload), raw)
        except BaseException as error:  # as above
            return failure(error)

    def _flush(self) -> None:
        if self._items:
            items, self._items = self._items, []
            lanes, self._new_lanes = self._new_lanes, {}
            self._size = 0
            self._say(Yielded(self._turn, lanes, items))

    def _read_ended(self, task: asyncio.Task[Failure | None]) -> None:
        self._flush()
        cancelled = task.cancelled()
        self._say(ReadingEnded(self._turn, None if cancelled else task.result(), cancelled))

    async def _close_stream(self, stream: object) -> None:
        close = getattr(stream, "aclose", None)
        if close is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await close()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a producer may raise anything, including SystemExit
            log.warning("Upstream does not close", stream=self._opening.stream, error=mask(describe_error(error)))

    async def _advance(self, command: Advance) -> None:
        if self._producer is not None:
            pairs = zip(command.numbers, command.outcomes, strict=True)
            await self._producer.advance(
                [AdvanceItem(self._unadvanced[number].payload, AdvanceOutcome(*counts)) for number, counts in pairs]
            )

    async def _decode_again(self, command: DecodeAgain) -> None:
        if self._producer is None:
            raise StreamError("The producer is not created yet.")
        self._decoded[command.call] = pack_stored(await self._producer.decode_again(unpack_stored(command.message)))

    async def _close(self) -> None:
        if self._producer is not None:
            await self._producer.aclose()

    def _call(self, call: int, work: Coroutine[Any, Any, None], numbers: list[int] | None = None) -> None:
        task = self._calls[call] = self._task(_capture_failure(work))
        task.add_done_callback(partial(self._call_ended, call, numbers or []))

    def _call_ended(self, call: int, numbers: list[int], task: asyncio.Task[Failure | None]) -> None:
        del self._calls[call]
        cancelled = task.cancelled()
        failed = None if cancelled else task.result()
        released = [] if cancelled or failed is not None else self._drop_advanced(numbers)
        self._say(CallEnded(self._turn, call, failed, cancelled, released, self._decoded.pop(call, None)))

    def _drop_advanced(self, numbers: list[int]) -> list[int]:
        """Drop raw events that are advanced. Return the lanes without unadvanced raw events."""
        released: list[int] = []
        for number in numbers:
            lane = self._unadvanced.pop(number).lane
            if lane is None:
                continue
            self._left[lane] -= 1
            if not self._left[lane]:
                del self._left[lane]
                released.append(lane)
        for number in released:
            lane_key = self._lanes.pop(number)
            if isinstance(failed := self._call_safely(partial(self._lane_numbers.pop, lane_key, None)), Failure):
                log.debug("lane lookup failed", stream=self._opening.stream, error=clean_text(failed.message))
        return released


async def _capture_failure(work: Coroutine[Any, Any, None]) -> Failure | None:
    """Await a call; return its failure, or None."""
    try:
        await work
    except asyncio.CancelledError:
        raise
    except Exception as error:
        return failure(error)
    except BaseException as error:  # a producer may raise anything, including SystemExit
        return failure(StreamError(f"the producer raised {describe_error(error)}"))
    return None
