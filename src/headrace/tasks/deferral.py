"""How the body of a task ends other than by returning or failing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from headrace.core.values.json_values import why_not_plain
from headrace.core.values.limits import MAX_JSON_DEPTH, has_non_finite, is_too_deep
from headrace.errors import ProjectError
from headrace.tasks.log_event import LogEvent
from headrace.triggers.base import BaseEventTrigger, BaseTrigger
from headrace.wire.task_runs import AwaitedTrigger, WaitCondition


@dataclass(eq=False)
class TaskDeferred(BaseException):
    """The task releases its worker until `trigger` fires, or the event arrives, and continues with `method_name(run, event, **kwargs)`.

    After `timeout` seconds it continues with `timeout_method(run, **kwargs)`, or fails without one. `method_name` None is the task itself.
    It is not an `Exception`, so that an `except Exception` of the task does not catch it.
    """

    trigger: BaseTrigger | LogEvent
    method_name: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | timedelta | None = None
    timeout_method: str | None = None
    queue: str = "default"

    def waiting(self) -> WaitCondition:
        """Return the request to the API. Raises `ProjectError` if an argument is not JSON."""
        seconds = self.timeout.total_seconds() if isinstance(self.timeout, timedelta) else self.timeout
        if seconds is not None and seconds <= 0:
            raise ProjectError(f"A run cannot wait for {seconds:g} seconds.", hint="Give timeout= in seconds, more than 0.")
        event = self.trigger.awaited() if isinstance(self.trigger, LogEvent) else None
        return WaitCondition(
            trigger=awaited(self.trigger, self.queue) if event is None else None,
            event=event,
            method=self.method_name,
            kwargs=arguments_as_json(self.kwargs, "kwargs="),
            timeout=seconds,
            timeout_method=self.timeout_method,
        )


class TaskSkipped(BaseException):
    """The run ends as skipped, with a reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def awaited(trigger: object, queue: str = "default") -> AwaitedTrigger:
    """Return a trigger as it is written down. Raises `ProjectError` where a run cannot wait for it."""
    if not isinstance(trigger, BaseTrigger):
        raise ProjectError(f"A run cannot wait for {trigger!r}.", hint="Give it a trigger, such as FileTrigger('there.json').")
    if isinstance(trigger, BaseEventTrigger) and trigger.shared_stream_key() is not None:
        raise ProjectError(
            f"A run cannot wait for {trigger!r}, which reads a shared stream.",
            hint="Watch the stream in the project, and wait for the events of that trigger: LogEvent('its name').",
        )
    classpath, kwargs = trigger.serialize()
    if (odd := why_not_plain(kwargs)) is not None:
        raise ProjectError(
            f"What {classpath} serializes cannot be written as JSON: {odd}.", hint="Use texts, numbers, lists and dictionaries."
        )
    return AwaitedTrigger(classpath=classpath, kwargs=kwargs, queue=queue)


def arguments_as_json(arguments: Mapping[str, Any], what: str) -> str:
    """Return keyword arguments as JSON text. Raises `ProjectError` where JSON does not give them back as they are."""
    if (odd := why_not_plain(dict(arguments))) is not None:
        raise ProjectError(f"{what} cannot be written as JSON: {odd}.", hint="Use texts, numbers, lists and dictionaries.")
    return as_json(arguments, what)


def as_json(value: object, what: str) -> str:
    """Return a value as JSON text. Raises `ProjectError` if it is not JSON."""
    hint = "Use texts, numbers, lists and dictionaries."
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProjectError(f"{what} cannot be written as JSON: {error}", hint=hint) from error
    if is_too_deep(encoded):
        raise ProjectError(f"{what} cannot be written as JSON: it is nested deeper than {MAX_JSON_DEPTH} levels.", hint=hint)
    if has_non_finite(value, encoded):
        raise ProjectError(f"{what} cannot be written as JSON: it has a NaN or an Infinity.", hint=hint)
    return encoded.decode()
