from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from headrace.demo.progress import Progress
from headrace.wire.status.status import EventCount, Status, Totals
from support.pipelines.flights import few_plan

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def status(read: int) -> Status:
    return Status(
        version="0",
        now=NOW,
        head=read,
        events=EventCount(total=read, per_second=10.0),
        dead_letters=35,
        jobs=[],
        triggers=[],
        streams=[],
        totals=Totals(
            read=read, fired=2 * read, stored=read, advanced=read, waiting=7, ordered=read - 7, rows=8_888, dead_letters=35, lost=5
        ),
        scopes=[],
        pipelines=[],
        runs=[],
        recent=[],
    )


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def output_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_plain_lines_are_printed_at_intervals_and_at_the_end() -> None:
    clock, console = Clock(), Console(file=io.StringIO(), width=200, force_terminal=False)
    with Progress(console, few_plan().manifest, clock=clock) as progress:
        for second, read in enumerate(range(1_000, 9_000, 1_000)):
            clock.now = float(second)
            progress.update(status(read))
    lines = output_of(console).splitlines()
    assert [line.split("read ")[1].split(" ")[0] for line in lines] == ["1,000", "6,000", "8,000"]
    for name in ("read", "fired", "stored", "advanced", "waiting", "ordered", "lost", "dead letters", "rows out"):
        assert f"{name} " in lines[0]
    assert "\x1b" not in output_of(console)


def test_on_a_terminal_bars_are_redrawn() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    with Progress(console, few_plan().manifest) as progress:
        progress.update(status(1_000))
        progress.note("the pipeline was started again")
        progress.update(status(2_000))
    text = output_of(console)
    assert "2,000" in text
    assert "8,888" in text
    assert " %" in text
    assert "the pipeline was started again" in text


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with Progress(console) as progress:
        progress.update(status(1_000))
    assert "\x1b[3" not in output_of(console)


def test_progress_without_updates_prints_no_text() -> None:
    console = Console(file=io.StringIO(), force_terminal=False)
    with Progress(console):
        pass
    assert output_of(console) == ""
