"""Run one load on one side. This module imports neither side."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from bench.streams.case import Case
from bench.streams.feed import Feed

KEY: Final = "bench"
MAX_LOAD_SECONDS: Final = 300.0


class Trigger(Protocol):
    """The common interface of the triggers of both sides."""

    def filter_shared_stream(self, stream: AsyncIterator[Any], /) -> AsyncIterator[Any]: ...


class Manager(Protocol):
    """The common interface of `SharedStreamManager` of both sides."""

    def subscribe(self, *, trigger_id: int, trigger: Any, key: Hashable) -> AsyncIterator[Any]: ...

    def bind_pending_event(self, *, trigger_id: int, key: Hashable) -> int | None: ...

    def confirm_persisted(self, seqs: Iterable[int]) -> None: ...

    async def stop_all(self) -> None: ...


class Side(Protocol):
    """One of the two measured systems."""

    version: str

    def feed(self, case: Case) -> Feed:
        """Return the upstream of the side's triggers."""
        ...

    def manager(self) -> Manager: ...

    def trigger(self, k: int | None, *, acks: bool) -> Trigger:
        """Return a trigger with a trivial filter: it fires on raw events with this `k`, or on all if `k` is None."""
        ...

    def declare(self, manager: Any, case: Case) -> None:
        """Declare the subscribers as watches."""
        ...


@dataclass(frozen=True, slots=True)
class Took:
    """One measurement: seconds of wall time and of processor time, and samples of the resident memory in bytes."""

    events: int
    seconds: float
    cpu: float
    resident: list[int]

    def on_wire(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)


def texts(count: int) -> list[bytes]:
    """Return `count` raw events as JSON text, each with its own `k`."""
    return [
        json.dumps(
            {"id": f"flight-{k:05}", "k": k, "carrier": "UA", "origin": "EWR", "dest": "IAH", "dep_delay": 2, "pad": "x" * 80}
        ).encode()
        for k in range(count)
    ]


def parsed(count: int) -> list[Any]:
    """Return the same raw events as mappings."""
    return [json.loads(text) for text in texts(count)]


async def drive(side: Side, case: Case) -> Took:
    """Run the load to its end."""
    feed = side.feed(case)
    manager = side.manager()
    tasks: list[asyncio.Task[None]] = []
    gc.collect()
    if case.declared:
        side.declare(manager, case)
    else:
        left = [case.subscribers]
        for number in range(case.subscribers):
            trigger = side.trigger(number if case.selective else None, acks=case.acks)
            stream = trigger.filter_shared_stream(manager.subscribe(trigger_id=number, trigger=trigger, key=KEY))
            expected = -1 if case.acks else case.deliveries // case.subscribers
            tasks.append(asyncio.create_task(_consume(manager, number, stream, expected, left, feed)))
    try:
        done = asyncio.create_task(_wait_for(feed))
        tasks.append(done)
        # A subscriber returns only when its stream has ended; then the clock would never stop.
        await asyncio.wait(tasks, timeout=MAX_LOAD_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise SystemExit(f"The stream of the benchmark ended or stalled: {case.name}.")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await manager.stop_all()
    return Took(case.events, feed.seconds, feed.cpu, feed.resident)


async def _wait_for(feed: Feed) -> None:
    await feed.done.wait()


async def _consume(manager: Manager, number: int, stream: AsyncIterator[Any], expected: int, left: list[int], feed: Feed) -> None:
    """Confirm each trigger event immediately, as a runner does. The last subscriber that gets `expected` events stops the clock."""
    count = 0
    async for _ in stream:
        seq = manager.bind_pending_event(trigger_id=number, key=KEY)
        if seq is not None:
            manager.confirm_persisted((seq,))
        count += 1
        if count == expected:
            left[0] -= 1
            if not left[0]:
                feed.finish()
