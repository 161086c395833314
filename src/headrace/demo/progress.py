"""Progress of the demo: a live table on a terminal, otherwise a line every five seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace.demo.feed.manifest import Manifest
from headrace.wire.status.status import Status

LINE_INTERVAL_SECONDS: Final = 5.0
BAR_WIDTH: Final = 40


class Progress:
    """Context that shows one status after another. `expected` is the manifest of the feed, once it exists."""

    def __init__(self, console: Console, expected: Manifest | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.expected = expected
        self._console = console
        self._clock = clock
        self._began = clock()
        self._next_line = self._began
        self._live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        self._last: Status | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._last is not None:
            self._console.print(self._line(self._last))

    def update(self, status: Status) -> None:
        """Show `status`: immediately on a terminal, otherwise at most one line in five seconds."""
        self._last = status
        if self._live is not None:
            self._live.update(self._picture(status), refresh=True)
        elif self._clock() >= self._next_line:
            self._console.print(self._line(status))
            self._next_line = self._clock() + LINE_INTERVAL_SECONDS

    def note(self, text: str) -> None:
        """Print a permanent note, such as the restart of a process."""
        self._console.print(Text(text))

    def _seconds(self) -> float:
        return self._clock() - self._began

    def _line(self, status: Status) -> Text:
        counts = "  ".join(f"{name} {count:,}" for name, count in _counts(status).items())
        return Text(f"{self._seconds():5.0f} s  {counts}")

    def _picture(self, status: Status) -> RenderableType:
        numbers = Table(box=None, padding=(0, 3, 0, 0), show_header=True, header_style="dim")
        counts = _counts(status)
        for name in counts:
            numbers.add_column(name, justify="right", no_wrap=True)
        numbers.add_row(*(f"[bold]{count:,}[/]" for count in counts.values()))
        parts: list[RenderableType] = [numbers]
        if self.expected is not None:
            parts.append(self._bars(self.expected, status))
        parts.append(Text(f"{self._seconds():.0f} s, {status.events.per_second:,.0f} events/s, {_processes(status)}", style="dim"))
        return Group(*parts)

    def _bars(self, expected: Manifest, status: Status) -> Table:
        departures = expected.legs - len(expected.withheld)
        bars = Table.grid(padding=(0, 2, 0, 0))
        for name, done, total in (("read", status.totals.read, expected.lines), ("ordered", status.totals.ordered, departures)):
            bar = ProgressBar(total=max(total, 1), completed=min(done, total), width=BAR_WIDTH)
            bars.add_row(name, bar, f"{100 * min(done, total) / max(total, 1):3.0f} %")
        return bars


def _counts(status: Status) -> dict[str, int]:
    totals = status.totals
    return {
        "read": totals.read,
        "fired": totals.fired,
        "stored": totals.stored,
        "advanced": totals.advanced,
        "waiting": totals.waiting,
        "ordered": totals.ordered,
        "lost": totals.lost,
        "dead letters": totals.dead_letters,
        "rows out": totals.rows,
    }


def _processes(status: Status) -> str:
    running = sorted(job.kind for job in status.jobs if job.state == "running")
    if "pipeline" in running and not status.totals.ordered:
        return "Spark is at its first batch, which takes 10 to 20 seconds"
    return ", ".join(running) + " running" if running else "nothing running yet"
