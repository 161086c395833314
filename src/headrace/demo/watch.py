"""Follow the main job until the whole feed is in the tables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.demo.feed.manifest import Manifest
from headrace.demo.feed.writer import FEED_FOLDER, done_files
from headrace.demo.status_stream import statuses
from headrace.errors import ProcessFailed
from headrace.wire.status.status import Status

_STALLED: Final = 180.0  # seconds without any change after which something is wrong


async def follow(url: str, home: Path, show: Callable[[Status], None]) -> None:
    """Show each status; return when the whole feed is in the tables.

    Raises:
        ProcessFailed: Nothing changed for three minutes.
    """
    loop = asyncio.get_running_loop()
    last, moved = None, loop.time()
    async for status in statuses(url):
        show(status)
        if status.totals != last:
            last, moved = status.totals, loop.time()
        if complete(status, home):
            return
        if loop.time() - moved > _STALLED:
            raise ProcessFailed(
                f"Nothing has moved for {_STALLED:.0f} s; the totals are {status.totals.model_dump()}.",
                hint=f"The logs in {home / 'logs'} say who waits for whom. The same command goes on from here.",
            )


def complete(status: Status, home: Path) -> bool:
    """Return whether the feed is written, its files are done, and the scopes have committed the whole log with no event waiting."""
    manifest = Manifest.load(home)
    if manifest is None or status.head == 0 or not status.scopes:
        return False
    if len(done_files(home / FEED_FOLDER)) < manifest.files:
        return False
    return all(scope.lag == 0 and scope.waiting == 0 for scope in status.scopes)
