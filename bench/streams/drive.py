"""Puts one side under one load. Knows neither side; imports neither."""

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
LONGEST: Final = 300.0
"""Maximum seconds of one load."""


class Trigger(Protocol):
    """What both sides' triggers have."""

    def filter_shared_stream(self, stream: AsyncIterator[Any], /) -> AsyncIterator[Any]: ...


class Manager(Protocol):
    """What both sides' `SharedStreamManager` has."""

    def subscribe(self, *, trigger_id: int, trigger: Any, key: Hashable) -> AsyncIterator[Any]: ...

    def bind_pending_event(self, *, trigger_id: int, key: Hashable) -> int | None: ...

    def confirm_persisted(self, seqs: Iterable[int]) -> None: ...

    async def stop_all(self) -> None: ...


class Side(Protocol):
    """One of the two that are measured."""

    version: str

    def feed(self, case: Case) -> Feed:
        """Return the upstream that the side's triggers will read."""
        ...

    def manager(self) -> Manager: ...

    def trigger(self, wants: int | None, *, acks: bool) -> Trigger:
        """Return a trigger with a trivial filter, which wants the raw events whose `k` is `wants`, or all."""
        ...

    def declare(self, manager: Any, case: Case) -> None:
        """Declare the subscribers as watches."""
        ...


@dataclass(frozen=True, slots=True)
class Took:
    """What one measurement cost: seconds of the clock, and of the processor; and the memory held on the way, in bytes."""

    events: int
    seconds: float
    cpu: float
    resident: list[int]

    def on_wire(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)


def texts(count: int) -> list[bytes]:
    """Return `count` raw events as JSON text, each with another `k`."""
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
            want = -1 if case.acks else case.deliveries // case.subscribers
            tasks.append(asyncio.create_task(_consume(manager, number, stream, want, left, feed)))
    try:
        done = asyncio.create_task(_through(feed))
        tasks.append(done)
        # A subscriber only returns when its stream has ended, so that the clock would never stop.
        await asyncio.wait(tasks, timeout=LONGEST, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise SystemExit(f"The stream of the benchmark ended or stood still: {case.name}.")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await manager.stop_all()
    return Took(case.events, feed.seconds, feed.cpu, feed.resident)


async def _through(feed: Feed) -> None:
    await feed.done.wait()


async def _consume(manager: Manager, number: int, stream: AsyncIterator[Any], want: int, left: list[int], feed: Feed) -> None:
    """Confirm at once whatever the filter yields, as a runner would; the last subscriber to have `want` stops the clock."""
    got = 0
    async for _ in stream:
        seq = manager.bind_pending_event(trigger_id=number, key=KEY)
        if seq is not None:
            manager.confirm_persisted((seq,))
        got += 1
        if got == want:
            left[0] -= 1
            if not left[0]:
                feed.finish()
