"""An event of the log, as something that a run may wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from headrace.core.matching.patterns.parser import parse_pattern
from headrace.core.matching.payloads import pattern_text
from headrace.errors import ProjectError
from headrace.wire.task_runs import AwaitedEvent


@dataclass(frozen=True, slots=True)
class LogEvent:
    """The next event, in causal order, on which a trigger of the project fired whose name matches `on` (glob patterns).

    If `id`, `subject` or `type` are given, the event must have them. `match` is an event pattern, as in `Project.watch`, that the payload
    must match. Events since the creation of the run count, and a run gets no event twice. It continues with a CloudEvent as `event`; the
    payload is its `data`.
    """

    on: str | Sequence[str]
    id: str | None = None
    subject: str | None = None
    type: str | None = None
    match: Mapping[str, Any] | None = field(default=None, hash=False)

    def awaited(self) -> AwaitedEvent:
        """Return the request to the API. Raises `ProjectError` if a run cannot wait for it."""
        match = self.match
        if match is not None:
            parse_pattern(match)
            match = dict(match)
            pattern_text(match)
        try:
            on = [self.on] if isinstance(self.on, str) else list(self.on)
            return AwaitedEvent(on=on, id=self.id, subject=self.subject, type=self.type, match=match)
        except (TypeError, ValidationError) as error:
            raise ProjectError(
                f"A run cannot wait for {self!r}.", hint="Like this: LogEvent('legs.*', subject='N14228'), with texts that are not empty."
            ) from error
