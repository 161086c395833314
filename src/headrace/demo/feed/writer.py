"""Write the feed: complete files, renamed into the folder one time slice after another, independent of any reader."""

from __future__ import annotations

import time
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from threading import Event
from typing import Final

import structlog

from headrace.demo.feed.manifest import Manifest, Parameters
from headrace.demo.feed.plan import FeedPlan, plan_feed
from headrace.durable_files import replace_file
from headrace.errors import ResourceError, UsageError
from headrace.sources.directory.folder import DONE_FOLDER
from headrace.sources.files.folder_lock import FolderLock

FEED_FOLDER: Final = "feed"
LOCK_NAME: Final = ".feed.lock"
LOCK_RETRY: Final = 0.5

log = structlog.get_logger(__name__)


def run_feed(home: Path, parameters: Parameters, stop: Event | None = None) -> Manifest:
    """Write the missing files of the feed into `home/feed`, paced over `parameters.seconds`. Return when all exist
    or `stop` is set.

    Existing files, and files that their reader has moved to `home/feed/done`, are not written again: an interrupted
    feed resumes. Raises `UsageError` if `home` has another feed, `ResourceError` if it cannot be written.
    """
    stop = stop or Event()
    lock = FolderLock(home / LOCK_NAME)
    try:
        (home / FEED_FOLDER).mkdir(parents=True, exist_ok=True)
        while not lock.try_acquire():
            if stop.wait(LOCK_RETRY):
                return plan_feed(parameters).manifest
        plan = _plan(home, parameters)
        _announce(plan.manifest)
        _write(home / FEED_FOLDER, plan, stop)
    except OSError as error:
        raise ResourceError(
            f"The feed cannot be written to {home}: {error.strerror or error}.",
            hint="Choose a folder that can be written, with free space.",
        ) from error
    finally:
        lock.release()
    return plan.manifest


def done_files(folder: Path) -> list[Path]:
    """Return the files that the reader of the feed's `folder` has finished. It moves each to a folder of the day."""
    return list((folder / DONE_FOLDER).glob("*/*.jsonl"))


def _plan(home: Path, parameters: Parameters) -> FeedPlan:
    """Plan the feed and write its manifest to `home`, unless that of another feed is there."""
    manifest = Manifest.load(home)
    if manifest is not None and manifest.parameters != parameters:
        raise UsageError(
            f"{home} holds another feed ({_describe(manifest.parameters)}) than the requested one ({_describe(parameters)}).",
            hint="Ask for the same feed to resume it, or choose another folder.",
        )
    plan = plan_feed(parameters)
    if manifest is None:
        plan.manifest.save(home)
    elif manifest != plan.manifest:
        raise UsageError(f"The feed in {home} was made by another version of Headrace.", hint="Choose another folder.")
    return plan


def _write(folder: Path, plan: FeedPlan, stop: Event) -> None:
    """Write the missing files. The clock starts at the first of them, so that a resumed feed has the same pace."""
    there = _names_in(folder)
    missing = [file for file in plan.files if file.name not in there]
    if not missing:
        return
    pace = plan.manifest.parameters.seconds / plan.manifest.parameters.slices
    first, began = missing[0].slice, time.monotonic()
    for number, files in groupby(missing, key=attrgetter("slice")):
        due = began + (number - first + 1) * pace
        if stop.wait(max(0.0, due - time.monotonic())):
            log.info("feed stopped", next_slice=number)
            return
        for file in files:
            replace_file(folder / file.name, file.data)
    log.info("feed complete", files=len(plan.files), lines=plan.manifest.lines)


def _names_in(folder: Path) -> set[str]:
    """Return the names of all files written: list the folder first, as a reader moves files from there to `done`."""
    names = {path.name for path in folder.glob("*.jsonl")}
    return names | {path.name for path in done_files(folder)}


def _announce(manifest: Manifest) -> None:
    log.info(
        "feed planned",
        seed=manifest.parameters.seed,
        period=manifest.parameters.period,
        legs=manifest.legs,
        lines=manifest.lines,
        repeated=manifest.repeated,
        followers_before_leaders=manifest.early,
        longest_seconds_before=manifest.max_early_seconds,
        leaders_that_never_come=len(manifest.withheld),
        bad_lines=len(manifest.bad),
    )


def _describe(parameters: Parameters) -> str:
    return f"seed {parameters.seed}, {parameters.period}, {parameters.seconds:g} s"
