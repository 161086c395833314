"""Small upstreams, triggers and sinks in memory, for tests of shared streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from itertools import count
from typing import Any, ClassVar

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome, Answer
from headrace.errors import StreamEnded
from headrace.streams.backlog import BacklogEntry
from headrace.streams.manager import SharedStreamManager
from headrace.streams.sink import Malformed, Matched, Poisoned, RejectedEvent, Spilled
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import TriggerEvent
from headrace.triggers.upstream import SharedStreamProducer, Upstream

KEY = "memory"
STOP = object()
"""Fed to a `Feed`, it makes the stream return."""


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop run until `condition` holds."""
    for _ in count():
        if condition():
            return
        await asyncio.sleep(0)


async def settle(turns: int = 60) -> None:
    """Let the loop run for so many turns, for what must not happen."""
    for _ in range(turns):
        await asyncio.sleep(0)


class Feed(SharedStreamProducer):
    """A broker in memory: yields what is fed, and remembers what was advanced. An item is `(lane, raw)`, or `raw` in the lane None."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.feed(*items)
        self.opened = 0
        self.closed = 0
        self.read = 0
        self.batches: list[tuple[Hashable, list[AdvanceItem]]] = []
        self.hold: dict[Hashable, asyncio.Event] = {}
        self.failures: dict[Hashable, int] = {}
        self.error: Exception = ConnectionError("the broker is away")
        self.running: set[Hashable] = set()
        self.overlap = 0

    def feed(self, *items: Any) -> None:
        for item in items:
            self.queue.put_nowait(item)

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        self.opened += 1
        while True:
            item = await self.queue.get()
            if item is STOP:
                return
            if isinstance(item, Exception):
                raise item
            self.read += 1
            lane, raw = item if isinstance(item, tuple) else (None, item)
            yield raw, (lane, self.read, raw)

    def get_advance_lane(self, broker_payload: Any) -> Hashable:
        lane: Hashable = broker_payload[0]
        return lane

    def get_position(self, broker_payload: Any) -> int | None:
        position: int = broker_payload[1]
        return position

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        lane = batch[0].broker_payload[0]
        assert lane not in self.running, "a lane advances one batch at a time"
        self.running.add(lane)
        self.overlap = max(self.overlap, len(self.running))
        try:
            if lane in self.hold:
                await self.hold[lane].wait()
            await asyncio.sleep(0)
            if self.failures.get(lane, 0) > 0:
                self.failures[lane] -= 1
                raise self.error
        finally:
            self.running.remove(lane)
        assert not self.closed
        self.batches.append((lane, list(batch)))

    async def aclose(self) -> None:
        self.closed += 1

    @property
    def advanced(self) -> list[Any]:
        """The raw events advanced, in order."""
        return [item.broker_payload[2] for _, batch in self.batches for item in batch]

    @property
    def outcomes(self) -> list[AdvanceOutcome]:
        return [item.outcome for _, batch in self.batches for item in batch]

    def of(self, lane: Hashable) -> list[Any]:
        return [item.broker_payload[2] for key, batch in self.batches if key == lane for item in batch]


class Reads(BaseEventTrigger):
    """A trigger that fires on the raw events that `wanted` accepts. Each test makes a class of its own, bound to its feed."""

    feed: ClassVar[Feed]

    def __init__(self, wanted: Callable[[Any], bool] = lambda _: True) -> None:
        super().__init__()
        self.wanted = wanted

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "support.sources.streams.Reads", {}

    def shared_stream_key(self) -> str:
        return KEY

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        return cls.feed

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for raw in stream:
            if self.wanted(raw):
                yield TriggerEvent(raw)


def reads(feed: Feed) -> type[Reads]:
    """Return the class of triggers that read `feed`."""
    return type("ReadsFeed", (Reads,), {"feed": feed})


class Runner:
    """Runs one trigger as an engine would: what it fires is bound; with `confirm` it is also confirmed at once."""

    def __init__(
        self, manager: SharedStreamManager, trigger_id: int, trigger: BaseEventTrigger, *, confirm: bool = True, key: Hashable = KEY
    ) -> None:
        self.manager, self.trigger_id, self.trigger, self.confirm, self.key = manager, trigger_id, trigger, confirm, key
        self.events: list[Any] = []
        self.seqs: list[int | None] = []
        self.stream = manager.subscribe(trigger_id=trigger_id, trigger=trigger, key=key)
        self.task = asyncio.create_task(self._run())
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())  # a test that does not ask is not interested

    async def _run(self) -> None:
        async for event in self.trigger.filter_shared_stream(self.stream):
            seq = self.manager.bind_pending_event(trigger_id=self.trigger_id, key=self.key)
            self.seqs.append(seq)
            self.events.append(event.payload)
            if self.confirm and seq is not None:
                self.manager.confirm_persisted([seq])

    async def error(self) -> BaseException | None:
        """Wait for the trigger to end, and return why it did."""
        await asyncio.wait({self.task})
        return self.task.exception()

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})
        await self.manager.unsubscribe(self.trigger_id, self.key)


class MemoryUpstream(Upstream):
    """An upstream whose producers are found by name in `feeds`."""

    feeds: ClassVar[dict[str, Feed]] = {}

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def of(cls, feed: Feed, name: str = KEY) -> MemoryUpstream:
        cls.feeds[name] = feed
        return cls(name)

    def stream_key(self) -> str:
        return self.name

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "support.sources.streams.MemoryUpstream", {"name": self.name}

    def producer(self) -> SharedStreamProducer:
        return self.feeds[self.name]

    @property
    def event_type(self) -> str:
        return "memory.item"


class Sink:
    """Remembers what it was given; `auto` confirms at once."""

    def __init__(self, *, auto: bool = False) -> None:
        self.auto = auto
        self.manager: SharedStreamManager | None = None
        self.events: list[Matched] = []
        self.dead: list[Malformed] = []
        self.ends: list[tuple[str, tuple[int, ...], Exception]] = []

    def matched(self, matched: Matched) -> None:
        self.events.append(matched)
        if self.auto and self.manager is not None:
            self.manager.confirm_persisted([matched.seq])

    def malformed(self, malformed: Malformed) -> None:
        self.dead.append(malformed)

    def ended(self, key: str, trigger_ids: tuple[int, ...], error: Exception) -> None:
        self.ends.append((key, trigger_ids, error))


def other_tasks() -> set[asyncio.Task[Any]]:
    """All tasks but the running one."""
    current = asyncio.current_task()
    return {task for task in asyncio.all_tasks() if task is not current}


class Keeper(Sink):
    """A sink that keeps backlogs and dead letters in memory, as the api would; without `auto` what it is given waits for `store`."""

    def __init__(self, *, auto: bool = True) -> None:
        super().__init__(auto=auto)
        self.spills: list[Spilled] = []
        self.letters: list[Poisoned | RejectedEvent] = []
        self.failures: list[tuple[int, Exception]] = []
        self.on_failed: Callable[[int], None] = lambda _: None
        self.waiting: list[Matched | Malformed | Spilled | Poisoned | RejectedEvent] = []
        self.backlogs: dict[int, Kept] = {}
        self._seen: set[tuple[int, str, int | None, str]] = set()
        self._numbers = count(1)

    def backlog(self, trigger_id: int) -> Kept:
        return self.backlogs.setdefault(trigger_id, Kept())

    def matched(self, matched: Matched) -> None:
        self.events.append(matched)
        self._take(matched)

    def malformed(self, malformed: Malformed) -> None:
        self.dead.append(malformed)
        self._take(malformed)

    def spilled(self, spilled: Spilled) -> None:
        self.spills.append(spilled)
        self._take(spilled)

    def poisoned(self, poisoned: Poisoned) -> None:
        self.letters.append(poisoned)
        self._take(poisoned)

    def rejected(self, event: RejectedEvent) -> None:
        self.letters.append(event)
        self._take(event)

    def failed(self, key: str, trigger_id: int, error: Exception) -> None:
        self.failures.append((trigger_id, error))
        self.on_failed(trigger_id)

    def store(self, most: int = 1_000_000) -> None:
        """Make the oldest of what waits durable, and say so."""
        done, self.waiting = self.waiting[:most], self.waiting[most:]
        for one in done:
            if isinstance(one, Spilled):
                for trigger_id in one.trigger_ids:
                    self.keep(trigger_id, one.lane, one.position, one.raw)
        if self.manager is not None:
            self.manager.confirm_persisted([one.seq for one in done])

    def keep(self, trigger_id: int, lane: str, position: int | None, raw: str, attempts: int = 0) -> None:
        place = (trigger_id, lane, position, raw)
        if place not in self._seen:
            self._seen.add(place)
            number = next(self._numbers)
            self.backlog(trigger_id).entries[number] = BacklogEntry(number, KEY, lane, position, raw, attempts)

    def _take(self, one: Matched | Malformed | Spilled | Poisoned | RejectedEvent) -> None:
        self.waiting.append(one)
        if self.auto:
            self.store()


class Kept:
    """The backlog of one trigger, in memory. `gate`: fetches wait for it; `troubles`: so many settles fail first."""

    def __init__(self) -> None:
        self.entries: dict[int, BacklogEntry] = {}
        self.answers: list[tuple[int, Answer]] = []
        self.fetches = 0
        self.troubles = 0
        self.gate: asyncio.Event | None = None

    async def fetch(self, after: int, limit: int) -> Sequence[BacklogEntry]:
        self.fetches += 1
        page = [entry for number, entry in self.entries.items() if number > after][:limit]
        await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate.wait()
        return page

    async def settle(self, settled: Sequence[tuple[int, Answer]]) -> None:
        await asyncio.sleep(0)
        if self.troubles:
            self.troubles -= 1
            raise ConnectionError("the api is away")
        self.answers += settled
        for number, _ in settled:
            self.entries.pop(number, None)


class Engine:
    """Runs one registered trigger as the engine does, again after each fault; what it fires is bound, and confirmed at once."""

    def __init__(self, manager: SharedStreamManager, keeper: Keeper, trigger_id: int, trigger: BaseEventTrigger) -> None:
        self.manager, self.keeper, self.trigger_id, self.trigger = manager, keeper, trigger_id, trigger
        self.events: list[Any] = []
        self.faults: list[int] = []
        self.seqs: list[int] = []
        self.confirm = True
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        stream = self.manager.subscribe(
            trigger_id=self.trigger_id, trigger=self.trigger, key=KEY, backlog=self.keeper.backlog(self.trigger_id)
        )
        self.task = asyncio.create_task(self._run(stream))

    async def _run(self, stream: AsyncIterator[Any]) -> None:
        while True:
            try:
                async for event in self.trigger.filter_shared_stream(stream):
                    seq = self.manager.bind_pending_event(trigger_id=self.trigger_id, key=KEY)
                    self.events.append(event.payload)
                    if seq is not None:
                        self.seqs.append(seq)
                        if self.confirm:
                            self.manager.confirm_persisted([seq])
            except StreamEnded:
                return
            except Exception as error:
                self.faults.append(self.manager.record_failure(trigger_id=self.trigger_id, key=KEY, error=error))
            await asyncio.sleep(0)
            stream = self.manager.subscribe(
                trigger_id=self.trigger_id, trigger=self.trigger, key=KEY, backlog=self.keeper.backlog(self.trigger_id)
            )

    async def stop(self) -> None:
        """Cancel the filter and unsubscribe."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task})
            self.task = None
        await self.manager.unsubscribe(self.trigger_id, KEY)

    async def restart(self) -> None:
        """What the engine does for one that was failed."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task})
        self.start()
