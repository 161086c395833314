"""A trigger as the runner has loaded it from its workload."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headrace.triggerer.context import TriggerContext
from headrace.triggerer.runner.execution import TriggerExecution
from headrace.triggers.base import stream_name
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.triggers import RunTrigger

Role: TypeAlias = Literal["watch", "registered", "reader"]
"""How a trigger takes part in a stream.

A watch is declared. A registered trigger owes answers whether it runs or not, also while it is parked or cannot be
loaded. A reader owes nothing: its stream has no acks.
"""


@dataclass(slots=True)
class LoadedTrigger:
    """A loaded workload: a watch, a filter, or neither (parked, or with an error)."""

    workload: RunTrigger
    key: Hashable | None = None
    watch: WatchTrigger | None = None
    execution: TriggerExecution | None = None
    error: Exception | None = None

    @property
    def role(self) -> Role:
        """Its role at its stream, if it has one."""
        if self.watch is not None:
            return "watch"
        return "registered" if self.execution is None or self.execution.acks else "reader"

    @property
    def stream(self) -> str | None:
        """The name of its stream, or None if it polls alone."""
        key = self.workload.stream if self.key is None else self.key
        return None if key is None else stream_name(key)

    @property
    def context(self) -> TriggerContext:
        """The context of its log lines."""
        return context_of(self.workload)


def context_of(workload: RunTrigger) -> TriggerContext:
    """Return the context of the log lines of a workload."""
    return TriggerContext(workload.trigger_id, workload.name, workload.log_name)
