"""An upstream in memory that gives raw events at a steady rate and notes when each was due, stored and advanced."""

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
"""The variable that names the folder of the times, in all processes of a run."""


class Place(NamedTuple):
    """The payload of a raw event: its lane, its position there, and its number among all."""

    lane: str
    position: int
    number: int


class Times:
    """When each raw event of a run was due, stored and advanced (seconds of the system's steady clock; 0: not yet).

    What was due and what was advanced lies in a file that processes share: the producer runs in another one than the judge.
    """

    def __init__(self, run: str, total: int) -> None:
        path = Path(os.environ[FOLDER]) / f"{run}.times"
        if not path.exists():
            path.write_bytes(bytes(2 * total * np.dtype(np.float64).itemsize))
        shared = np.memmap(path, np.float64, "r+", shape=(2, total))
        self.due, self.advanced = shared[0], shared[1]
        self.stored = np.zeros(total)

    def note_stored(self, number: int, now: float) -> None:
        """Note the first time that a raw event was durable."""
        self.stored[number] = self.stored[number] or now

    def note_advanced(self, number: int, now: float) -> None:
        """Note the first time that the broker was told."""
        self.advanced[number] = self.advanced[number] or now


class Paced(Upstream):
    """`rate` raw events a second until there were `total`, in several lanes."""

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
            # What counts is when it was due: an upstream held back by a pause of the poll must not hide the wait.
            due = begun + number / self._rate
            self._times.due[number] = due
            ahead = due - perf_counter()
            if ahead > 0:
                await asyncio.sleep(ahead)
            lane, position = str(number % LANES), number // LANES
            yield RawEvent(_text(number), lane, position), Place(lane, position, number)
        await asyncio.Event().wait()

    def get_advance_lane(self, broker_payload: Place) -> str:
        return broker_payload.lane

    def get_position(self, broker_payload: Place) -> int:
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
    """Fires on every raw event, in Python."""

    async def handle(self, raw: RawEvent) -> TriggerEvent:
        return TriggerEvent(raw.value, id=raw.value["id"])


class Stuck(_PacedTrigger):
    """Never gets past its first raw event."""

    async def handle(self, raw: RawEvent) -> TriggerEvent:
        await asyncio.Event().wait()
        return TriggerEvent(raw.value)


class Blocking(_PacedTrigger):
    """Sleeps in the loop of its process, for ever, at its first raw event."""

    async def handle(self, raw: RawEvent) -> TriggerEvent:
        sleep(600)  # noqa: ASYNC251 - that is what it is for
        return TriggerEvent(raw.value)


class LoopingInC(_PacedTrigger):
    """Holds the interpreter's lock in C code, for ever, at its first raw event."""

    async def handle(self, raw: RawEvent) -> TriggerEvent:
        deque(repeat(None), maxlen=0)
        return TriggerEvent(raw.value)


class Looping(_PacedTrigger):
    """Computes in Python, for ever, at its first raw event."""

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
