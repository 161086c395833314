"""Which producers are Headrace's own: they run in the runner, as none of a user's code does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.triggerer.ipc.trigger_messages import Describe, Described, Ended, Step
from headrace.triggerer.process_pools.turn import Batch, TurnEnd, error_of
from headrace.triggers.base import BaseEventTrigger, BaseTrigger, has_acks
from headrace.triggers.upstream import is_own
from headrace.triggers.watch import WatchTrigger


def is_own_stream(kind: type[BaseEventTrigger], kwargs: dict[str, Any]) -> bool:
    """Return whether only code of Headrace's own opens the stream of a trigger."""
    if kind is WatchTrigger:
        return is_own(kwargs["upstream"]["classpath"])
    return is_own(f"{kind.__module__}.")


def own_upstream(kind: type[BaseTrigger], kwargs: dict[str, Any]) -> tuple[str | None, bytes]:
    """Make the producer of a trigger's stream; return the class path and the arguments (JSON) of the upstream where that is Headrace's own.

    Raises what the user's code raises.
    """
    if not (issubclass(kind, BaseEventTrigger) and has_acks(kind)):
        return None, b""
    producer = kind.create_shared_stream_producer(kwargs)
    upstream = getattr(producer, "upstream", None)
    if upstream is None or not is_own(f"{type(producer).__module__}.") or not is_own(f"{type(upstream).__module__}."):
        return None, b""
    classpath, arguments = upstream.serialize()
    return classpath, msgspec.json.encode(arguments)


class Description:
    """A turn in which a trigger process tells what opens the stream of a trigger; `on_end` is called once, with that or with the end."""

    is_exact = False

    def __init__(self, number: int, trigger_id: int, on_end: Callable[[Described | TurnEnd], None]) -> None:
        self.number = number
        self.trigger_id = trigger_id
        self._on_end = on_end
        self._described: Described | None = None

    def begin(self, workload: bytes) -> Describe:
        """Return the command that begins it."""
        return Describe(self.number, workload)

    def take(self, step: Step) -> None:
        """Take what the process says."""
        if isinstance(step, Described):
            self._described = step
        elif isinstance(step, Ended):
            self.finish(TurnEnd(None if step.failure is None else error_of(step.failure)))

    def fill(self, batch: Batch) -> None:
        """Put nothing into the batch."""
        del batch

    def finish(self, end: TurnEnd) -> None:
        """It is over."""
        self._on_end(end if self._described is None else self._described)
