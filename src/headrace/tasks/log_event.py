"""An event of the log, as something that a run may wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from headrace.errors import ProjectError
from headrace.wire.task_runs import AwaitedEvent


@dataclass(frozen=True, slots=True)
class LogEvent:
    """The next event, in causal order, that one of the project's triggers fired on: those whose names match `on` (glob patterns).

    Where `id`, `subject` or `type` are given, the event has them; for what is in its payload give a trigger a `match=` of its own. What
    came since the run was made counts, and a run gets no event twice. It goes on with a CloudEvent as `event`, whose payload is its `data`.
    """

    on: str | Sequence[str]
    id: str | None = None
    subject: str | None = None
    type: str | None = None

    def awaited(self) -> AwaitedEvent:
        """Return it as the api is told. Raises `ProjectError` where it cannot be waited for."""
        try:
            on = [self.on] if isinstance(self.on, str) else list(self.on)
            return AwaitedEvent(on=on, id=self.id, subject=self.subject, type=self.type)
        except (TypeError, ValidationError) as error:
            raise ProjectError(
                f"A run cannot wait for {self!r}.", hint="Like this: LogEvent('legs.*', subject='N14228'), with texts that are not empty."
            ) from error
