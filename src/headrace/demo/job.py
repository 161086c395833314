"""The main job on real flights: everything is started, fed, watched to its end, checked and shown."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.client.people import PeopleClient
from headrace.demo.check import CheckResult, check
from headrace.demo.feed import FEED_FOLDER
from headrace.demo.flights import Period
from headrace.demo.live import statuses
from headrace.demo.manifest import Manifest, Parameters
from headrace.demo.project_file import install_project
from headrace.errors import ProcessFailed, ResourceError, UsageError
from headrace.settings import Settings
from headrace.standalone.child import ChildSpec
from headrace.standalone.stack import Stack
from headrace.wire.status import DeadLetterPage, DeadLetterSummary, Status

LOOKBACK: Final = 20.0
"""Seconds; the feed never brings a follower that much before its leader, so only leaders that never come are waited for so long."""

_DONE = "demo-done.json"
_STALLED = 180.0  # seconds without any change after which the demo gives up

Progress = Callable[[Status], None]
Notice = Callable[[str], None]


@dataclass(frozen=True)
class DemoOptions:
    """What to run: which flights, by which seed."""

    period: Period
    seed: int
    fresh: bool


def prepare(settings: Settings, options: DemoOptions, parameters: Parameters) -> tuple[Settings, bool]:
    """Make the demo's folder ready; return its settings, and whether an earlier run goes on.

    Raises:
        UsageError: The folder holds something else, or an unfinished run with other parameters.
    """
    home = settings.home
    finished, manifest = (home / _DONE).exists(), Manifest.load(home)
    if home.exists() and any(home.iterdir()) and manifest is None and not (home / "project.py").exists():
        raise UsageError(f"{home} is not empty and is not a demo's folder.", hint="Name another: headrace demo --home DIR")
    if options.fresh or finished:
        shutil.rmtree(home, ignore_errors=False)
        manifest = None
    if manifest is not None and manifest.parameters != parameters:
        raise UsageError(
            f"{home} holds an unfinished run with other parameters (seed {manifest.parameters.seed}, {manifest.parameters.period}).",
            hint="Go on with the same, or throw it away: headrace demo --fresh",
        )
    try:
        project = install_project(home)
    except OSError as error:
        raise ResourceError(f"The demo's folder {home} cannot be made: {error.strerror}.", hint="Name another: --home DIR") from error
    return settings.model_copy(update={"project": project, "lookback": LOOKBACK}), manifest is not None


async def feed_and_follow(stack: Stack, home: Path, options: DemoOptions, progress: Progress) -> None:
    """Start the processes and the feed; return when all that was fed is in the tables.

    Raises:
        ProcessFailed: A process ended for good, or nothing moved for three minutes.
    """
    await stack.start(feed_spec(home, options))
    following = asyncio.create_task(_follow(stack.url, home, progress))
    failing = asyncio.create_task(_failed(stack))
    try:
        await asyncio.wait({following, failing}, return_when=asyncio.FIRST_COMPLETED)
        for task in (failing, following):
            if task.done():
                await task
    finally:
        following.cancel()
        failing.cancel()


def feed_spec(home: Path, options: DemoOptions) -> ChildSpec:
    """Return how the feed's process is started."""
    arguments = ("-m", "headrace", "demo-feed", "--home", str(home), "--seed", str(options.seed), "--period", options.period)
    return ChildSpec("feed", arguments, ends=True)


def verify(url: str, home: Path) -> CheckResult:
    """Check the result: source and tables against each other, and the dead letters that the api keeps."""
    with PeopleClient(url) as client:
        return check(home, all_dead_letters(client))


def all_dead_letters(client: PeopleClient) -> Sequence[DeadLetterSummary]:
    """Return every dead letter that the api keeps."""
    letters: list[DeadLetterSummary] = []
    before: str | None = None
    while True:
        page = DeadLetterPage.model_validate(client.dead_letters(limit=1000, before=before))
        letters += page.dead_letters
        if page.before is None:
            return letters
        before = page.before


def mark_done(home: Path, *, ok: bool) -> None:
    """Remember that this run has come to its end, so that the next one begins anew."""
    (home / _DONE).write_text(json.dumps({"ok": ok}) + "\n")


async def _follow(url: str, home: Path, progress: Progress) -> None:
    loop = asyncio.get_running_loop()
    last, moved = None, loop.time()
    async for status in statuses(url):
        progress(status)
        if status.totals != last:
            last, moved = status.totals, loop.time()
        if _complete(status, home):
            return
        if loop.time() - moved > _STALLED:
            raise ProcessFailed(
                f"Nothing has moved for {_STALLED:.0f} s: {status.totals.model_dump()}.",
                hint="The status page and `headrace logs … --home` say who waits; the same command goes on from here.",
            )


def _complete(status: Status, home: Path) -> bool:
    """Whether everything fed is in the tables: the feed is written, its files are done, and the scope has committed the whole log."""
    manifest = Manifest.load(home)
    if manifest is None or status.head == 0 or not status.scopes:
        return False
    feed = home / FEED_FOLDER
    if any(feed.glob("*.jsonl")) or sum(1 for _ in (feed / "done").glob("*.jsonl")) < manifest.files:
        return False
    return all(scope.cursor >= status.head and scope.waiting == 0 and scope.ordered >= status.head for scope in status.scopes)


async def _failed(stack: Stack) -> None:
    await stack.failed()
