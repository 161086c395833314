"""Run a project's triggers in this process on given raw events: real shared streams, matching, filters, retries and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any, Final

import msgspec

from headrace.client.triggerer import TriggererClient
from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import HeadraceError, StreamEnded, UsageError
from headrace.project import Project
from headrace.streams.manager import SharedStreamManager
from headrace.streams.upstream.producer_factory import StreamOpener
from headrace.testing.in_process_api import registration
from headrace.triggerer.builtin_upstream import describe_builtin_upstream
from headrace.triggerer.context import TriggerContext, current_trigger
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.outbox.sink import OutboxSink
from headrace.triggerer.outbox.uploader import Uploader
from headrace.triggerer.runner.backlog import ApiBacklog
from headrace.triggerer.runner.execution import TriggerExecution
from headrace.triggerer.user_process.trigger_executor import fired_event
from headrace.triggers.base import BaseEventTrigger, stream_name
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.upstream import SharedStreamProducer
from headrace.triggers.watch import WatchTrigger
from headrace.wire.calls.execution import LOAD_TRIGGERS
from headrace.wire.control.triggers import LoadTriggers
from headrace.wire.custody.events import BatchStored, DeadLetterItem, EventBatch

LANE: Final = "test"
MAX_QUEUED_EVENTS: Final = 1_000_000
MAX_LEASES: Final = 1_000_000
STOP_SECONDS: Final = 10.0


class EventStream(SharedStreamProducer):
    """A stream of the raw events that a test gives, instead of those of its upstream."""

    def __init__(self, *, raw_events: bool) -> None:
        self._raw_events = raw_events
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._total = 0
        self._advanced = 0
        self._answered = asyncio.Event()

    def give(self, raw: Any) -> None:
        """Add a raw event: as its upstream yields it, or as the JSON value or text that becomes a `RawEvent`."""
        self._total += 1
        self._queue.put_nowait(self._packed(raw))
        self._answered.clear()

    async def answered(self) -> None:
        """Wait until all triggers have answered all raw events, and the answers are stored."""
        if self._advanced < self._total:
            await self._answered.wait()

    @property
    def unanswered(self) -> int:
        """The raw events that are not answered by all triggers, or whose answers are not stored."""
        return self._total - self._advanced

    async def open_stream(self) -> AsyncIterator[tuple[Any, int]]:
        """Yield the raw events as they are given."""
        position = 0
        while True:
            raw = await self._queue.get()
            position += 1
            yield raw, position

    def get_position(self, broker_payload: int) -> int:
        """Return the number of the raw event in its stream."""
        return broker_payload

    def get_advance_lane(self, broker_payload: int) -> Hashable:
        """Return the only lane."""
        del broker_payload
        return LANE

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Note that these raw events are answered."""
        self._advanced += len(batch)
        if self._advanced == self._total:
            self._answered.set()

    def _packed(self, raw: Any) -> Any:
        if not self._raw_events or isinstance(raw, RawEvent):
            return raw
        data = raw if isinstance(raw, bytes) else raw.encode() if isinstance(raw, str) else msgspec.json.encode(raw)
        return RawEvent(data, LANE, self._total)


class _Opened(BaseEventTrigger):
    """Stands for each trigger where its stream is opened, so that all streams are advanced."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "", {}

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        raise NotImplementedError  # `make_producer` of the manager returns the producers


class TriggerRun:
    """The triggers of one project, in one event loop. `dead_letters` are those of raw events, in order."""

    def __init__(self, project: Project, client: TriggererClient) -> None:
        self._project = project
        self._client = client
        self._keys = {
            name: stream_name(key) for name, trigger in project.triggers.items() if (key := trigger.shared_stream_key()) is not None
        }
        self._streams = {key: EventStream(raw_events=self._yields_raw_events(key)) for key in self._keys.values()}
        self._epochs: dict[int, int] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._error: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.names: dict[int, str] = {}
        self.dead_letters: list[DeadLetterItem] = []
        self._outbox = Outbox()
        self._manager = SharedStreamManager(
            max_subscriber_queue=MAX_QUEUED_EVENTS,
            max_outstanding=MAX_QUEUED_EVENTS,
            sink=OutboxSink(self._outbox, self._mark_rejected, self._ended, self._failed),
            overflow="spill",
            retry_wait=0.0,
            make_producer=lambda key, _: self._streams[str(key)],
        )

    async def start(self) -> None:
        """Register a job that holds all triggers, and begin them."""
        await self._client.register(registration("triggerer", self._project.name))
        declared = self._project.declaration()
        await self._client.declare(self._project.name, declared)
        queues = sorted({trigger.queue for trigger in declared.triggers}) or ["default"]
        loaded = await self._client.request(LOAD_TRIGGERS, LoadTriggers(capacity=MAX_LEASES, queues=queues))
        self._epochs = {lease.trigger_id: lease.epoch for lease in loaded.leases}
        workloads = await self._client.workloads(list(self._epochs)) if self._epochs else None
        self.names = {} if workloads is None else {each.trigger_id: each.name for each in workloads.triggers}
        uploader = Uploader(self, self._outbox, self._manager, lambda ids: {one: self._epochs[one] for one in ids})
        self._run(uploader.run(), "uploader")
        self._begin()

    async def give(self, events: Mapping[str, Iterable[Any]], seconds: float) -> None:
        """Give raw events to streams, and wait until all are answered. The keys are names of triggers or stream keys.

        Raises:
            UsageError: There is no such trigger or stream.
            TimeoutError: A trigger has not answered within `seconds`.
            Exception: What ended a stream or the uploader.
        """
        for stream, raws in self._of(events):
            for raw in raws:
                stream.give(raw)
        answered = asyncio.gather(*(stream.answered() for stream in self._streams.values()))
        waits: set[asyncio.Future[Any]] = {answered, self._error}
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answered.done():
            return
        answered.cancel()
        with suppress(asyncio.CancelledError):
            await answered
        if self._error.done():
            self._error.result()
        waiting = [f"{stream.unanswered} of {key}" for key, stream in self._streams.items() if stream.unanswered]
        raise TimeoutError(f"Triggers did not answer all raw events within {seconds:g} s: {', '.join(waiting)}. Does a filter block?")

    async def poll(self, name: str, count: int, seconds: float) -> None:
        """Take the first `count` events of a trigger that polls alone. Raises as `give` does."""
        trigger = self._project.triggers.get(name)
        if trigger is None or name in self._keys:
            raise UsageError(f"The project has no trigger {name!r} that polls alone.")
        execution = self._execution(name, opener=None)
        current_trigger.set(execution.context)
        events = trigger.run()
        try:
            async with asyncio.timeout(seconds), AsyncExitStack() as exits:
                if isinstance(events, AsyncGenerator):
                    await exits.enter_async_context(aclosing(events))
                for _ in range(count):
                    execution.fired(fired_event(0, 0, await anext(events)))
        except TimeoutError as error:
            raise TimeoutError(f"The trigger {name!r} did not yield {count} events within {seconds:g} s.") from error
        except StopAsyncIteration as error:
            raise UsageError(f"The trigger {name!r} ended before it had yielded {count} events.") from error

    async def stop(self) -> None:
        """End all filters and streams, and clean the triggers up.

        Raises:
            TimeoutError: A filter or a cleanup did not end within STOP_SECONDS.
            Exception: A cleanup raised it.
        """
        try:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                _, stuck = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
                names = sorted(task.get_name() for task in stuck)
                if names:
                    raise TimeoutError(f"Cancelled filters did not end within {STOP_SECONDS:g} s: {', '.join(names)}.")
            await self._manager.stop_all()
            for trigger in self._project.triggers.values():
                async with asyncio.timeout(STOP_SECONDS):
                    await trigger.cleanup()
        finally:
            await self._client.aclose()
            self._error.cancel()

    async def store(self, batch: EventBatch) -> BatchStored:
        """Store a batch, and keep its dead letters for the result."""
        stored = await self._client.store(batch)
        self.dead_letters += batch.dead_letters
        return stored

    def _begin(self) -> None:
        watches: dict[str, dict[int, WatchTrigger]] = {}
        filters: dict[str, dict[int, str]] = {}
        for trigger_id, name in sorted(self.names.items()):
            trigger, key = self._project.triggers[name], self._keys.get(name)
            if key is None:
                continue
            if isinstance(trigger, WatchTrigger):
                watches.setdefault(key, {})[trigger_id] = trigger
            else:
                filters.setdefault(key, {})[trigger_id] = name
        for key, named in filters.items():
            self._manager.register(trigger_ids=named, key=key)
            for name in named.values():
                opener = StreamOpener(_Opened, {})
                self._run(self._filter(self._execution(name, opener), self._project.triggers[name]), name)
        for key, triggers in watches.items():
            self._manager.watch(triggers=triggers, key=key)

    async def _filter(self, execution: TriggerExecution, trigger: BaseEventTrigger) -> None:
        """Run a filter, again after each failure, as a triggerer does but without waits."""
        current_trigger.set(execution.context)
        while True:
            execution.subscribe()
            if execution.subscription is None:
                return
            try:
                async for event in trigger.filter_shared_stream(execution.subscription):
                    execution.fired(fired_event(0, 0, event))
            except StreamEnded:
                return
            except Exception as error:  # a filter of a user may raise anything
                execution.record_failure(error)
            await asyncio.sleep(0)

    def _execution(self, name: str, opener: StreamOpener | None) -> TriggerExecution:
        trigger_id = next(number for number, known in self.names.items() if known == name)
        backlog = ApiBacklog(self._client, trigger_id, lambda number: self._epochs[number])
        context = TriggerContext(trigger_id, name, name)
        return TriggerExecution(context, b"", opener, self._manager, self._outbox, backlog, key=self._keys.get(name))

    def _of(self, events: Mapping[str, Iterable[Any]]) -> list[tuple[EventStream, Iterable[Any]]]:
        known = {**self._streams, **{name: self._streams[key] for name, key in self._keys.items()}}
        unknown = [name for name in events if name not in known]
        if unknown:
            raise UsageError(f"The project reads no stream {unknown[0]!r}.", hint=f"Name one of its triggers: {', '.join(self._keys)}.")
        return [(known[name], raws) for name, raws in events.items()]

    def _yields_raw_events(self, key: str) -> bool:
        """Whether the stream's upstream yields `RawEvent`s: watches read them, and Headrace's own upstreams yield nothing else."""
        triggers = [self._project.triggers[name] for name, stream in self._keys.items() if stream == key]
        return any(
            isinstance(trigger, WatchTrigger) or describe_builtin_upstream(type(trigger), trigger.serialize()[1])[0] for trigger in triggers
        )

    def _run(self, coroutine: Any, name: str) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        task.add_done_callback(self._finished)
        self._tasks.append(task)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._error.done():
            self._error.set_exception(error)

    def _mark_rejected(self, seq: int) -> None:
        self._manager.mark_rejected(seq)

    def _ended(self, key: str, trigger_ids: Sequence[int], error: Exception) -> None:
        del key, trigger_ids
        self._fail(error)

    def _failed(self, key: str, trigger_id: int, error: Exception) -> None:
        self._fail(HeadraceError(f"The trigger {self.names[trigger_id]!r} failed on {key}: {error}"))
