"""An upstream in memory that yields raw events at a steady rate and records when each is due, stored and advanced."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Sequence
from itertools import repeat
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final, NamedTuple

import numpy as np

from headrace.core.ledger.outcome import AdvanceItem
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import TriggerEvent
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.upstream import SharedStreamProducer, Upstream

LANES = 8
FOLDER: Final = "BENCH_TIMES"
"""The environment variable with the folder of the times, in all processes of a run."""


class Payload(NamedTuple):
    """The payload of a raw event: its lane, its position in the lane, and its number in the run."""

    lane: str
    position: int
    number: int


class Times:
    """The times at which each raw event of a run is due, stored and advanced, in seconds of the monotonic clock. 0 means not yet.

    Times of due and advanced raw events are in a file, because the producer runs in another process than the judge.
    """

    def __init__(self, run: str, total: int) -> None:
        path = Path(os.environ[FOLDER]) / f"{run}.times"
        if not path.exists():
            path.write_bytes(bytes(2 * total * np.dtype(np.float64).itemsize))
        shared = np.memmap(path, np.float64, "r+", shape=(2, total))
        self.due, self.advanced = shared[0], shared[1]
        self.stored = np.zeros(total)

    def note_stored(self, number: int, now: float) -> None:
        """Record when a raw event is first durable."""
        self.stored[number] = self.stored[number] or now

    def note_advanced(self, number: int, now: float) -> None:
        """Record when the broker is first advanced past a raw event."""
        self.advanced[number] = self.advanced[number] or now


class Paced(Upstream):
    """Yields `total` raw events in several lanes, `rate` per second."""

    event_type = "bench.paced"

    def __init__(self, run: str, rate: int, total: int) -> None:
        self._run, self._rate, self._total = run, rate, total

    def stream_key(self) -> str:
        return f"paced:{self._run}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Paced", {"run": self._run, "rate": self._rate, "total": self._total}

    def producer(self) -> SharedStreamProducer:
        return _Producer(Times(self._run, self._total), self._rate, self._total)


class _Producer(SharedStreamProducer):
    def __init__(self, times: Times, rate: int, total: int) -> None:
        self._times, self._rate, self._total = times, rate, total

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        begun = perf_counter()
        for number in range(self._total):
            # Latency counts from the due time, so that a paused poll does not hide the wait.
            due = begun + number / self._rate
            self._times.due[number] = due
            ahead = due - perf_counter()
            if ahead > 0:
                await asyncio.sleep(ahead)
            lane, position = str(number % LANES), number // LANES
            yield RawEvent(_text(number), lane, position), Payload(lane, position, number)
        await asyncio.Event().wait()

    def get_advance_lane(self, broker_payload: Payload) -> str:
        return broker_payload.lane

    def get_position(self, broker_payload: Payload) -> int:
        return broker_payload.position

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        now = perf_counter()
        for item in batch:
            self._times.note_advanced(item.broker_payload.number, now)


class _PacedTrigger(BaseEventTrigger):
    def __init__(self, run: str, rate: int, total: int) -> None:
        super().__init__()
        self._upstream = Paced(run, rate, total)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.{type(self).__name__}", self._upstream.serialize()[1]

    def shared_stream_key(self) -> str:
        return self._upstream.stream_key()

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        return Paced(**kwargs).producer()


class Handled(_PacedTrigger):
    """Fires on each raw event, in Python."""

    async def handle(self, raw: RawEvent) -> TriggerEvent:
        return TriggerEvent(raw.value, id=raw.value["id"])


class Stuck(_PacedTrigger):
    """Never finishes its first raw event."""

    async def handle(self, raw: RawEvent) -> TriggerEvent:
        await asyncio.Event().wait()
        return TriggerEvent(raw.value)


class Blocking(_PacedTrigger):
    """Blocks the loop of its process in a sleep at its first raw event."""

    async def handle(self, raw: RawEvent) -> TriggerEvent:
        sleep(600)  # noqa: ASYNC251 - blocks the loop on purpose
        return TriggerEvent(raw.value)


class LoopingInC(_PacedTrigger):
    """Holds the interpreter's lock in C code forever at its first raw event."""

    async def handle(self, raw: RawEvent) -> TriggerEvent:
        deque(repeat(None), maxlen=0)
        return TriggerEvent(raw.value)


class Looping(_PacedTrigger):
    """Runs an infinite loop in Python at its first raw event."""

    async def handle(self, raw: RawEvent) -> TriggerEvent:
        number = 0
        while number >= 0:
            number += 1
        return TriggerEvent(raw.value)


def _text(number: int) -> bytes:
    return b'{"id":"flight-%d","number":%d,"carrier":"UA","origin":"EWR","dest":"IAH","dep_delay":2,"pad":"%s"}' % (
        number,
        number,
        b"x" * 80,
    )
