"""Run users' triggers: filters, `handle`, `run()` and `cleanup`. This process makes no decisions, and its end loses no data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from headrace.core.matching.envelope import EventFields
from headrace.core.values.limits import MAX_JSON_DEPTH, has_non_finite, is_too_deep
from headrace.core.values.text import describe_text, describe_value
from headrace.errors import AckTimeout, StreamEnded, StreamError, SubscriberOverflow
from headrace.triggerer.context import TriggerContext, current_trigger
from headrace.triggerer.cooperative_yield import CooperativeYield
from headrace.triggerer.exception_text import Failure, failure
from headrace.triggerer.gc_freeze import gc_frozen
from headrace.triggerer.ipc.api_calls import ApiCalls
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.messages import CallFailed, CallSucceeded
from headrace.triggerer.ipc.producer_messages import CallEnded, LanesAnswered, ReadingEnded, Yielded
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat, TrackedCoroutine
from headrace.triggerer.ipc.trigger_messages import (
    Begin,
    Cancel,
    Close,
    Command,
    Commands,
    Described,
    Ended,
    Fired,
    Next,
    OutboxCapacity,
    Rejected,
    Release,
    Released,
    Reset,
    Step,
    Steps,
)
from headrace.triggerer.user_process.loader import load_trigger
from headrace.triggerer.user_process.producer_executor import ProducerExecutor
from headrace.triggerer.user_process.remote_stream import RemoteStream, unpack
from headrace.triggers.base import BaseEventTrigger, BaseTrigger
from headrace.triggers.event import RunFailed, TriggerEvent
from headrace.triggers.masking import mask
from headrace.wire.control.triggers import RunTrigger

MAX_STEPS: Final = 256
"""Steps in one message, also while a filter does not yield to the loop."""

_ERRORS: Final[dict[str, type[Exception]]] = {kind.__name__: kind for kind in (StreamEnded, AckTimeout, SubscriberOverflow)}

log = structlog.get_logger(__name__)


class _LoadedTrigger(NamedTuple):
    """A loaded trigger, and whether a task run waits for it."""

    trigger: BaseTrigger
    running: TriggerContext
    awaited: bool


class TriggerExecutor:
    """Executes the runner's commands until the runner ends. `calls` are the triggers' calls of the API."""

    def __init__(self, link: Channel, calls: ApiCalls, heartbeat: SharedHeartbeat) -> None:
        self._link = link
        self._calls = calls
        self._heartbeat = heartbeat
        self._loaded: dict[int, _LoadedTrigger] = {}
        self._streams: dict[int, RemoteStream] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._cleanups: set[asyncio.Task[None]] = set()
        self._steps: list[Step] = []
        self._may_fire = asyncio.Event()
        self._may_fire.set()
        self.producers = ProducerExecutor(self._say, heartbeat)

    async def run(self) -> None:
        """Run until the runner ends."""
        while (frame := await self._link.receive()) is not None:
            if isinstance(frame, Commands):
                await self._handle(frame)
            elif isinstance(frame, CallSucceeded | CallFailed):
                self._calls.complete(frame)

    async def _handle(self, commands: Commands) -> None:
        if commands.commands:  # most frames only deliver
            await self._execute_all(commands.commands)
        for turn, index in commands.delivered:
            if (stream := self._streams.get(turn)) is not None:
                # unpacked for each turn, so that changes by one trigger are not visible to others
                stream.deliver(unpack(commands.raws[index]))

    async def _execute_all(self, commands: Sequence[Command]) -> None:
        yielder = CooperativeYield()
        with gc_frozen(sum(isinstance(command, Begin) for command in commands)):
            for command in commands:
                self._execute(command)
                await yielder.checkpoint()

    def _execute(self, command: Command) -> None:
        match command:
            case Begin():
                self._begin(command)
            case Reset(turn, generation):
                if (stream := self._streams.get(turn)) is not None:
                    stream.reset(generation)
            case Close(turn, kind, message):
                if (stream := self._streams.get(turn)) is not None:
                    stream.close(_ERRORS.get(kind, StreamError)(message))
            case Cancel(turn):
                if (task := self._tasks.get(turn)) is not None:
                    self._cancelled.add(turn)
                    task.cancel()
            case Release():
                self._release(command)
            case OutboxCapacity(available):
                self._may_fire.set() if available else self._may_fire.clear()
            case _:
                self.producers.do(command)

    def _begin(self, begin: Begin) -> None:
        turn, workload = begin.turn, RunTrigger.model_validate_json(begin.workload)
        stream = None if begin.acks is None else RemoteStream(turn, workload.stream or "", self._say, acks=begin.acks)
        trigger_id = workload.trigger_id
        running = TriggerContext(trigger_id, workload.name, workload.log_name, None if stream is None else stream.origin)
        context = copy_context()
        context.run(current_trigger.set, running)
        try:
            with self._heartbeat.at(trigger_id):
                events = context.run(self._events, workload, running, stream)
        except Exception as error:  # a user's trigger may raise anything
            self._say(Ended(turn, 0, failure(error), trigger_id in self._loaded))
            return
        if stream is not None:
            self._streams[turn] = stream
        turning = self._turn(turn, stream, events, awaited=workload.run_id is not None)
        task = self._tasks[turn] = asyncio.Task(TrackedCoroutine(turning, self._heartbeat, running), name=workload.name, context=context)
        task.add_done_callback(partial(self._ended, turn))

    def _events(self, workload: RunTrigger, running: TriggerContext, stream: RemoteStream | None) -> AsyncIterator[TriggerEvent]:
        loaded = self._loaded.get(workload.trigger_id)
        trigger = load_trigger(workload) if loaded is None else loaded.trigger
        self._loaded[workload.trigger_id] = _LoadedTrigger(trigger, running, workload.run_id is not None)
        if stream is not None and isinstance(trigger, BaseEventTrigger):
            return trigger.filter_shared_stream(stream)
        return trigger.run()

    async def _turn(self, turn: int, stream: RemoteStream | None, events: AsyncIterator[TriggerEvent], *, awaited: bool) -> None:
        if awaited:
            self._fire(turn, stream, await _first(events))
            return
        async for event in events:
            self._fire(turn, stream, event)
            await self._may_fire.wait()

    def _fire(self, turn: int, stream: RemoteStream | None, event: TriggerEvent) -> None:
        self._say(fired_event(turn, 0 if stream is None else stream.generation, event))

    def _ended(self, turn: int, task: asyncio.Task[None]) -> None:
        stream = self._streams.pop(turn, None)
        del self._tasks[turn]
        failed: Failure | None = None
        if task.cancelled():
            if turn not in self._cancelled:
                failed = failure(RuntimeError("The trigger's filter cancelled itself."))
        elif (error := task.exception()) is not None:
            # without a traceback if the stream ended: all its filters end at once, and none of them caused it
            failed = failure(error, with_traceback=stream is None or error is not stream.closed_with)
        self._cancelled.discard(turn)
        self._say(Ended(turn, 0 if stream is None else stream.generation, failed, loaded=True))

    def _release(self, release: Release) -> None:
        try:
            loaded = self._to_clean_up(release)
        except Exception as error:  # a user's trigger may raise anything
            self._say(Released(release.trigger_id, failure(error)))
            return
        if loaded is None:
            self._say(Released(release.trigger_id, None))
            return
        context: Context = copy_context()
        context.run(current_trigger.set, loaded.running)
        cleanup = TrackedCoroutine(_cleanup(loaded.trigger), self._heartbeat, loaded.running)
        task = asyncio.Task(cleanup, name=f"cleanup of {loaded.running.name}", context=context)
        self._cleanups.add(task)
        task.add_done_callback(partial(self._released, release.trigger_id))

    def _to_clean_up(self, release: Release) -> _LoadedTrigger | None:
        loaded = self._loaded.pop(release.trigger_id, None)
        if release.workload is None:
            return None if loaded is None or loaded.awaited else loaded
        if loaded is not None:
            return loaded
        workload = RunTrigger.model_validate_json(release.workload)
        with self._heartbeat.at(workload.trigger_id):
            return _LoadedTrigger(
                load_trigger(workload), TriggerContext(workload.trigger_id, workload.name, workload.log_name), awaited=True
            )

    def _released(self, trigger_id: int, task: asyncio.Task[None]) -> None:
        self._cleanups.discard(task)
        error = RuntimeError("cleanup cancelled itself.") if task.cancelled() else task.exception()
        self._say(Released(trigger_id, None if error is None else failure(error)))

    def _say(self, step: Step) -> None:
        self._steps.append(step)
        if len(self._steps) == 1:
            asyncio.get_running_loop().call_soon(self._send)
        elif len(self._steps) >= MAX_STEPS:
            self._send()

    def _send(self) -> None:
        if self._steps:
            steps, self._steps = self._steps, []
            try:
                self._link.post(Steps(steps))
            except Exception:  # one of the steps has a user's value that cannot be encoded, and the others must arrive
                for step in steps:
                    self._send_alone(step)

    def _send_alone(self, step: Step) -> None:
        try:
            self._link.post(Steps([step]))
        except Exception as error:
            log.exception("step not encodable", step=type(step).__name__)
            self._link.post(Steps([_writable(step, error)]))


def _writable(step: Step, error: Exception) -> Step:
    """Return a replacement for a step that cannot be encoded: an event becomes a dead letter, any other step fails its turn."""
    match step:
        case Fired(turn, generation):
            return Fired(turn, generation, None, {}, mask(describe_text(error)))
        case Rejected(turn, generation):
            return Rejected(turn, generation, mask(describe_text(error)))
        case Released(trigger_id):
            return Released(trigger_id, failure(error))
        case Next(turn, generation) | Ended(turn, generation):
            return Ended(turn, generation, failure(error), loaded=True)
        case CallEnded(turn, call):
            return CallEnded(turn, call, failure(error), cancelled=False, released=[])
        case LanesAnswered(turn):
            return LanesAnswered(turn, [], failure(error))
        case Yielded(turn) | ReadingEnded(turn):
            return ReadingEnded(turn, failure(error), cancelled=False)
        case Described(turn):
            return Ended(turn, 0, failure(error), loaded=True)


def fired_event(turn: int, generation: int, event: TriggerEvent) -> Fired:
    """Return the step of a yielded event. Raises `TypeError` for any other value."""
    if not isinstance(event, TriggerEvent):
        raise TypeError(f"The trigger yielded a {type(event).__name__}. Yield a TriggerEvent.")
    try:
        return Fired(turn, generation, _payload(event), _fields(event))
    except Exception as error:  # any error of a user's value affects this event only
        return Fired(turn, generation, None, {}, mask(_reason(error)), mask(describe_value(event)))


def _payload(event: TriggerEvent) -> bytes:
    """Return the payload as JSON. Raises any error of its values, and `ValueError` for a payload that no store accepts."""
    encoded = msgspec.json.encode(event.payload)
    if is_too_deep(encoded):
        raise ValueError(f"The payload is nested deeper than {MAX_JSON_DEPTH} levels.")
    if has_non_finite(event.payload, encoded):
        raise ValueError("The payload has a NaN or an Infinity, which JSON has not.")
    return encoded


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"It is nested deeper than {MAX_JSON_DEPTH} levels, or contains itself."
    return describe_text(error)


def _fields(event: TriggerEvent) -> dict[str, str]:
    """Return the fields that an event sets, except its payload. Raises an error if one is not valid."""
    fields: dict[str, str] = {}
    for name in EventFields._fields:
        value = getattr(event, name)
        if value is None:
            continue
        text = value.isoformat() if name == "occurred" else value
        if not isinstance(text, str):
            raise TypeError(f"The event's `{name}` is {type(text).__name__}, not a text.")
        text.encode()  # no lone surrogate
        fields[name] = text
    return fields


async def _cleanup(trigger: BaseTrigger) -> None:
    await trigger.cleanup()


async def _first(events: AsyncIterator[TriggerEvent]) -> Any:
    """Return the first event and close the iterator. If there is none, return an event that fails the waiting task run."""
    try:
        async for event in events:
            return event
        return RunFailed("The trigger ended without firing.")
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
