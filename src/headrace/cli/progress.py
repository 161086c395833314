"""Progress of long work on a terminal, with a bar for each phase."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from headrace.cli.console import err


class ProgressBars:
    """Shows the progress of each phase. `transient` removes the bars at the end and omits the elapsed time."""

    def __init__(self, unit: str = "", *, transient: bool = False) -> None:
        columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,} of {task.total:,}" + f" {unit}".rstrip())]
        timed = columns if transient else [*columns, TimeElapsedColumn()]
        self._progress = Progress(*timed, console=err, transient=transient, disable=not err.is_terminal)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._progress.stop()

    def update(self, phase: str, done: int, total: int) -> None:
        """Show the progress of a phase."""
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(escape(phase), total=total)
        self._progress.update(self._tasks[phase], completed=min(done, total), total=total)
