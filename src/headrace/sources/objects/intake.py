"""The objects to read, one after the other: those of listings and notifications that are new, and those to be tried again."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

import structlog

from headrace.errors import StreamError
from headrace.sources.objects.bucket import Bucket
from headrace.sources.objects.digests import DigestSet
from headrace.sources.objects.location import Selection
from headrace.sources.objects.notifications import Notifications
from headrace.sources.objects.state import State
from headrace.sources.objects.tracker import TrackedObject, Tracker

MAX_WAITING: Final = 1_000
"""Objects that are found and not read. A listing pauses at this number."""
MAX_RETRIED: Final = 10_000
"""Objects that wait to be read for the first time or again. Listings and notifications pause at this number."""
RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 30.0
MAX_EXPONENT: Final = 10
LISTING: Final = "listing"

log = structlog.get_logger(__name__)


class Intake:
    """Finds objects from `start` to `aclose`. `problems` names what cannot be read now.

    Args:
        bucket: The bucket.
        selection: Which of its objects are read.
        interval: The seconds between two listings, or None for a stream of notifications only.
        tracker: Knows which objects are new.
        state: Prunes objects that no longer exist.
        problems: Names what cannot be read now.
    """

    def __init__(
        self, bucket: Bucket, selection: Selection, interval: float | None, tracker: Tracker, state: State, problems: dict[str, str]
    ) -> None:
        self._bucket = bucket
        self._selection = selection
        self._interval = interval
        self._tracker = tracker
        self._state = state
        self._problems = problems
        self._waiting: deque[TrackedObject] = deque()
        self._retries: list[tuple[float, int, TrackedObject]] = []
        """A heap of the objects that could not be read, by the time of their retry."""
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._failure: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, resumed: Iterable[TrackedObject], notifications: Notifications | None) -> None:
        """Begin with the objects that were in progress."""
        self._waiting.extend(resumed)
        self._update_room()
        if self._interval is not None:
            self._begin(self._list_repeatedly(self._interval), "headrace listing of a bucket")
        if notifications is not None:
            self._begin(self._receive(notifications), "headrace notifications of a bucket")

    async def next(self) -> TrackedObject:
        """Return the next object to read. Raises the error that ended a listing or the notifications."""
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        return self._pop()

    def next_now(self) -> TrackedObject | None:
        """Return the next object if there is one."""
        return self._pop() if self._waiting else None

    def retry(self, tracked: TrackedObject) -> None:
        """Return an object to the end of the line after a pause, which grows with its failures."""
        due = asyncio.get_running_loop().time() + _pause(tracked.failures)
        heappush(self._retries, (due, next(self._numbers), tracked))
        self._update_room()
        self._set_timer()

    async def aclose(self) -> None:
        """End all tasks."""
        self._retries.clear()
        self._set_timer()
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _pop(self) -> TrackedObject:
        tracked = self._waiting.popleft()
        self._update_room()
        return tracked

    def _update_room(self) -> None:
        waiting = len(self._waiting)
        if waiting < MAX_WAITING and waiting + len(self._retries) < MAX_RETRIED:
            self._room.set()
        else:
            self._room.clear()

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._failure = self._failure or error
            self._arrived.set()

    def _put(self, tracked: TrackedObject) -> None:
        self._waiting.append(tracked)
        self._update_room()
        self._arrived.set()

    def _set_timer(self) -> None:
        """Set the only timer to the time of the next retry."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._retries[0][0], self._put_due) if self._retries else None

    def _put_due(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._retries and self._retries[0][0] <= now:
            self._put(heappop(self._retries)[2])
        self._set_timer()

    async def _receive(self, notifications: Notifications) -> None:
        while True:
            await self._room.wait()
            self._put(await notifications.next())

    async def _list_repeatedly(self, interval: float) -> None:
        """List again and again. The pause is at least as long as a listing takes."""
        failures = 0
        while True:
            begun = time.monotonic()
            try:
                objects, busy = await self._list()
            except StreamError as error:
                if LISTING not in self._problems:
                    log.warning("bucket not listed", error=str(error))
                self._problems[LISTING] = str(error)
                pause = _pause(failures)
                failures += 1
            else:
                failures = 0
                self._problems.pop(LISTING, None)
                pause = max(interval, busy)
                log.debug("bucket listed", objects=objects, seconds=round(time.monotonic() - begun, 3))
            await asyncio.sleep(pause)

    async def _list(self) -> tuple[int, float]:
        """List the folder once. Return how many objects it has, and the seconds without pauses for a full line."""
        seen = self._tracker.seen = DigestSet()
        continuation: str | None = None
        busy = 0.0
        try:
            while True:
                await self._room.wait()
                begun = time.monotonic()
                page = await self._bucket.list(self._selection.prefix, continuation)
                for stored in page.objects:
                    if self._selection.has(stored.key) and (tracked := self._tracker.list(stored)) is not None:
                        self._put(tracked)
                busy += time.monotonic() - begun
                continuation = page.next
                if continuation is None:
                    break
            objects = len(seen)
            if objects:
                await self._state.retain(seen)
        finally:
            self._tracker.seen = None
        return objects, busy


def _pause(failures: int) -> float:
    """Return the seconds before another attempt."""
    # Without its limit, the power is too large for a float after 1,024 failures, which are 9 hours.
    return min(MAX_RETRY_SECONDS, RETRY_SECONDS * float(2 ** min(failures, MAX_EXPONENT)))
