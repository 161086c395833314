"""A turn in which a trigger process describes the upstream of a trigger."""

from __future__ import annotations

from collections.abc import Callable

from headrace.triggerer.ipc.trigger_messages import Describe, Described, Ended, Step
from headrace.triggerer.process_pools.turn import Batch, TurnEnd, error_of


class Description:
    """A turn that describes the upstream of a trigger. `on_end` is called once, with the description or with the turn's end."""

    is_exact = False

    def __init__(self, number: int, trigger_id: int, on_end: Callable[[Described | TurnEnd], None]) -> None:
        self.number = number
        self.trigger_id = trigger_id
        self._on_end = on_end
        self._described: Described | None = None

    def begin(self, workload: bytes) -> Describe:
        """Return the command that begins the turn."""
        return Describe(self.number, workload)

    def take(self, step: Step) -> None:
        """Handle a step of the process."""
        if isinstance(step, Described):
            self._described = step
        elif isinstance(step, Ended):
            self.finish(TurnEnd(None if step.failure is None else error_of(step.failure)))

    def fill(self, batch: Batch) -> None:
        """Add no raw events."""
        del batch

    def finish(self, end: TurnEnd) -> None:
        """End the turn."""
        self._on_end(end if self._described is None else self._described)
