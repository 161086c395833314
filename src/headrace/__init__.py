"""Headrace runs PySpark pipelines on events.

The public face: it only hands names on, each when it is first asked for, so that `import headrace` stays quick and light.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.causal.event import CausalEvent
    from headrace.causal.ordering import CausalOrdering, claimed_event
    from headrace.core.batching import Debounce, Window
    from headrace.core.connection import Connection
    from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
    from headrace.core.ordering.handling import DeliveryPolicy
    from headrace.errors import EventAlreadySeen, EventArrivedEarly
    from headrace.project import Project, load_project
    from headrace.sources.directory.upstream import Directory
    from headrace.sources.memory.upstream import Memory
    from headrace.sources.queue.upstream import Queue
    from headrace.sources.queue.writer import QueueWriter
    from headrace.streams.manager import SharedStreamManager
    from headrace.tasks.deferral import TaskDeferred, TaskSkipped
    from headrace.tasks.log_event import LogEvent
    from headrace.tasks.run import Run
    from headrace.tasks.task import Task
    from headrace.triggers.base import BaseEventTrigger, BaseTrigger
    from headrace.triggers.builtin.file import FileTrigger
    from headrace.triggers.builtin.http_status import HttpStatusTrigger
    from headrace.triggers.builtin.time import DateTimeTrigger, TimeDeltaTrigger
    from headrace.triggers.event import SKIP, Reject, RunFailed, RunSkipped, RunSucceeded, TriggerEvent, reject_shared_stream_event
    from headrace.triggers.raw_event import RawEvent
    from headrace.triggers.secrets import aget_connection, aget_variable, get_connection, get_variable
    from headrace.triggers.upstream import SharedStreamProducer, Upstream
    from headrace.triggers.watch import WatchTrigger

__all__ = [
    "SKIP",
    "AdvanceItem",
    "AdvanceOutcome",
    "BaseEventTrigger",
    "BaseTrigger",
    "CausalEvent",
    "CausalOrdering",
    "Connection",
    "DateTimeTrigger",
    "Debounce",
    "DeliveryPolicy",
    "Directory",
    "EventAlreadySeen",
    "EventArrivedEarly",
    "FileTrigger",
    "HttpStatusTrigger",
    "LogEvent",
    "Memory",
    "Project",
    "Queue",
    "QueueWriter",
    "RawEvent",
    "Reject",
    "Run",
    "RunFailed",
    "RunSkipped",
    "RunSucceeded",
    "SharedStreamManager",
    "SharedStreamProducer",
    "Task",
    "TaskDeferred",
    "TaskSkipped",
    "TimeDeltaTrigger",
    "TriggerEvent",
    "Upstream",
    "WatchTrigger",
    "Window",
    "aget_connection",
    "aget_variable",
    "claimed_event",
    "get_connection",
    "get_variable",
    "load_project",
    "reject_shared_stream_event",
]

_HOMES = {
    "AdvanceItem": "core.ledger.outcome",
    "AdvanceOutcome": "core.ledger.outcome",
    "BaseEventTrigger": "triggers.base",
    "BaseTrigger": "triggers.base",
    "CausalEvent": "causal.event",
    "CausalOrdering": "causal.ordering",
    "Connection": "core.connection",
    "DateTimeTrigger": "triggers.builtin.time",
    "Debounce": "core.batching",
    "Directory": "sources.directory.upstream",
    "EventAlreadySeen": "errors",
    "EventArrivedEarly": "errors",
    "FileTrigger": "triggers.builtin.file",
    "DeliveryPolicy": "core.ordering.handling",
    "HttpStatusTrigger": "triggers.builtin.http_status",
    "LogEvent": "tasks.log_event",
    "Memory": "sources.memory.upstream",
    "Project": "project",
    "Queue": "sources.queue.upstream",
    "QueueWriter": "sources.queue.writer",
    "RawEvent": "triggers.raw_event",
    "Reject": "triggers.event",
    "Run": "tasks.run",
    "RunFailed": "triggers.event",
    "RunSkipped": "triggers.event",
    "RunSucceeded": "triggers.event",
    "SKIP": "triggers.event",
    "SharedStreamManager": "streams.manager",
    "SharedStreamProducer": "triggers.upstream",
    "Task": "tasks.task",
    "TaskDeferred": "tasks.deferral",
    "TaskSkipped": "tasks.deferral",
    "TimeDeltaTrigger": "triggers.builtin.time",
    "TriggerEvent": "triggers.event",
    "Upstream": "triggers.upstream",
    "WatchTrigger": "triggers.watch",
    "Window": "core.batching",
    "aget_connection": "triggers.secrets",
    "aget_variable": "triggers.secrets",
    "claimed_event": "causal.ordering",
    "get_connection": "triggers.secrets",
    "get_variable": "triggers.secrets",
    "load_project": "project",
    "reject_shared_stream_event": "triggers.event",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version("headrace")
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"headrace.{home}"), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
