"""What a task knows of the run that it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

from headrace.errors import ProjectError, TaskCancelled
from headrace.tasks.deferral import TaskDeferred, TaskSkipped
from headrace.tasks.log_event import LogEvent
from headrace.triggers.base import BaseTrigger


@dataclass(frozen=True)
class Run:
    """One task run. `attempt` is greater than 1 if a worker died in this step: its side effects may exist already."""

    id: str
    task: str
    project: str
    attempt: int
    _tables: Path | str
    _spark: Callable[[], Any] | None = field(default=None, repr=False)
    _cancelled: Event = field(default_factory=Event, repr=False)

    @property
    def tables(self) -> Path:
        """The folder of the pipelines' tables. Raises `ProjectError` if they are in a bucket."""
        if isinstance(self._tables, str):
            raise ProjectError(
                f"The tables are in the bucket {self._tables}, not in a folder of a disk.",
                hint="Write run.table('name'): the URL of one.",
            )
        return self._tables

    def table(self, name: str) -> str:
        """Return the path of a pipeline's table, or its URL if it is in a bucket."""
        return f"{self._tables}/{name}"

    @property
    def spark(self) -> Any:
        """The Spark session of the worker, created on first use."""
        if self._spark is None:
            raise ProjectError(f"The task {self.task!r} asks for no Spark.", hint="Declare it with @project.task(spark=True).")
        return self._spark()

    @property
    def cancelled(self) -> bool:
        """Whether the run was cancelled or belongs to another worker now. Further work has no effect."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise `TaskCancelled` if the run was cancelled. Call it at intervals in long functions."""
        if self.cancelled:
            raise TaskCancelled(f"The run {self.id} was cancelled.")

    def defer(
        self,
        *,
        trigger: BaseTrigger | LogEvent,
        method_name: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        timeout: float | timedelta | None = None,
        timeout_method: str | None = None,
        queue: str = "default",
    ) -> NoReturn:
        """Release the worker until `trigger` fires or the event arrives. Does not return. The arguments are those of `TaskDeferred`."""
        raise TaskDeferred(trigger, method_name, kwargs or {}, timeout, timeout_method, queue)

    def skip(self, reason: str = "") -> NoReturn:
        """End the run as skipped. Does not return."""
        raise TaskSkipped(reason)
