"""Run users' producers. The runner decides when to read, advance and close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial

from headrace.errors import StreamError
from headrace.triggerer.builtin_upstream import describe_builtin_upstream
from headrace.triggerer.context import TriggerContext, current_trigger
from headrace.triggerer.exception_text import failure
from headrace.triggerer.ipc.producer_messages import (
    Advance,
    CallEnded,
    CancelCall,
    CloseProducer,
    DecodeAgain,
    OpenProducer,
    ProducerCommand,
    QueryLanes,
    ReadOn,
    StopReading,
)
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.ipc.trigger_messages import Describe, Described, Ended, Step
from headrace.triggerer.user_process.hosted_producer import HostedProducer
from headrace.triggerer.user_process.loader import trigger_class
from headrace.wire.control.triggers import RunTrigger


class ProducerExecutor:
    """The producers of this process. `say` sends steps to the runner."""

    def __init__(self, say: Callable[[Step], None], heartbeat: SharedHeartbeat) -> None:
        self._say = say
        self._heartbeat = heartbeat
        self._producers: dict[int, HostedProducer] = {}

    @property
    def tasks(self) -> set[asyncio.Task[object]]:
        """The tasks that run users' code."""
        return {task for producer in self._producers.values() for task in producer.tasks}

    def do(self, command: ProducerCommand | Describe) -> None:
        """Execute a command of the runner."""
        if isinstance(command, OpenProducer):
            self._open(command)
        elif isinstance(command, Describe):
            self._describe(command)
        elif (producer := self._producers.get(command.turn)) is not None:
            self._do(producer, command)
        elif isinstance(command, Advance | CloseProducer | DecodeAgain):
            closed = failure(StreamError("The producer is closed."))
            self._say(CallEnded(command.turn, command.call, closed, cancelled=False, released=[]))

    def _do(self, producer: HostedProducer, command: ProducerCommand) -> None:
        match command:
            case ReadOn(_, events, count):
                producer.read_on(events, count)
            case StopReading():
                producer.stop_reading()
            case Advance():
                producer.advance(command)
            case CloseProducer(turn, call):
                producer.close(call, partial(self._producers.pop, turn, None))
            case DecodeAgain():
                producer.decode_again(command)
            case CancelCall(_, call):
                producer.cancel(call)
            case QueryLanes(_, lanes):
                producer.answer(lanes)

    def _open(self, command: OpenProducer) -> None:
        running = TriggerContext(command.producer_id, command.stream, "")
        context = copy_context()
        context.run(current_trigger.set, running)
        producer = self._producers[command.turn] = HostedProducer(command, running, context, self._say, self._heartbeat)
        producer.start()

    def _describe(self, describe: Describe) -> None:
        workload = RunTrigger.model_validate_json(describe.workload)
        try:
            with self._heartbeat.at(workload.trigger_id):
                described = describe_builtin_upstream(trigger_class(workload), workload.kwargs)
        except Exception as error:  # a user's class may raise anything
            self._say(Ended(describe.turn, 0, failure(error), loaded=True))
            return
        self._say(Described(describe.turn, *described))
        self._say(Ended(describe.turn, 0, None, loaded=True))
