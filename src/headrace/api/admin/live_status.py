"""One live status, shared by all clients.

Invariant: for followers, a status is computed at most once in `TICK` seconds, and only while a client follows. The
first follower to need it computes it, and the store's commits wake them. The computation of a
single request's status begins after the request.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import NamedTuple

import structlog

from headrace.api.admin.metrics import exposition
from headrace.api.alerts import alerts_of
from headrace.core.values.moments import moment
from headrace.errors import ResourceError
from headrace.store import Store
from headrace.store.control.balancing import UnassignedTriggers
from headrace.store.db.outages import Outage
from headrace.store.queries.series import series
from headrace.store.queries.status import Overview, overview
from headrace.wire.base import rfc3339
from headrace.wire.status.alerts import Alert
from headrace.wire.status.fitting import fit_status
from headrace.wire.status.status import EventCount, Status

TICK = 0.5
IDLE = 1.0
BEAT = 5.0
SPEED_OVER = 10.0
VERSION = version("headrace")

log = structlog.get_logger(__name__)


class RateMeter:
    """The rate of a counter over the last `over` seconds of its samples."""

    def __init__(self, over: float = SPEED_OVER) -> None:
        self._over = over
        self._samples: deque[tuple[float, int]] = deque()

    def sample(self, now: float, count: int) -> float:
        """Record the count at `now` (seconds) and return its growth per second; 0 for the first sample."""
        samples = self._samples
        samples.append((now, count))
        while len(samples) > 2 and samples[1][0] <= now - self._over:
            samples.popleft()
        since, before = samples[0]
        return (count - before) / (now - since) if now > since else 0.0


class StatusSnapshot(NamedTuple):
    """A status, the start of its computation (monotonic seconds), its JSON without the clock, to detect a change,
    and its event for followers.
    """

    began: float
    status: Status
    content: str
    frame: bytes


class LiveStatus:
    """The status of one store, shared by all requests."""

    def __init__(
        self, store: Store, *, clock: Callable[[], float] = time.monotonic, local_alerts: Callable[[], list[Alert]] = list
    ) -> None:
        self._store = store
        self._local_alerts = local_alerts
        self._clock = clock
        self._speed = RateMeter()
        self._unserved = UnassignedTriggers()
        self._snapshot: StatusSnapshot | None = None
        self._unreadable: Outage | None = None
        self._making = asyncio.Lock()
        self._woken = asyncio.Event()
        self._closing = asyncio.Event()

    async def status(self) -> Status:
        """Return the current status."""
        return (await self._fresh(self._clock())).status

    async def metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return await asyncio.to_thread(self._exposed, await self.status())

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield server-sent events without end: `status` at once and on each change, and `beat` after `BEAT` seconds without a change."""
        seen = ""
        spoke = 0.0
        with self._waking():
            while not self._closing.is_set():
                try:
                    snapshot = await self._fresh(self._clock() - TICK)
                except ResourceError as error:
                    log.warning("the status cannot be read", error=str(error), hint=error.hint)
                    return  # the client reconnects by itself
                if snapshot.content != seen:
                    yield snapshot.frame
                    seen, spoke = snapshot.content, self._clock()
                elif self._clock() - spoke >= BEAT:
                    yield f'event: beat\ndata: {{"now":"{rfc3339(snapshot.status.now)}"}}\n\n'.encode()
                    spoke = self._clock()
                await self._pause(snapshot.began + TICK)

    def close(self) -> None:
        """End every event stream, so that a server can stop while browsers follow."""
        self._closing.set()
        self._woken.set()

    async def closed(self) -> None:
        """Wait until the close."""
        await self._closing.wait()

    async def _fresh(self, since: float) -> StatusSnapshot:
        """Return a status whose computation began at `since` or later."""
        async with self._making:
            if self._snapshot is None or self._snapshot.began < since:
                self._woken.clear()
                self._snapshot = await self._make()
            return self._snapshot

    async def _make(self) -> StatusSnapshot:
        began = self._clock()
        try:
            store_overview = await asyncio.to_thread(self._read)
        except ResourceError as error:
            return self._with_last_status(began, error)
        self._unreadable = None
        return await asyncio.to_thread(self._snapshot_of, began, store_overview)

    def _snapshot_of(self, began: float, overview: Overview) -> StatusSnapshot:
        speed = self._speed.sample(began, overview.head)
        status = Status(
            version=VERSION,
            now=moment(overview.now),
            head=overview.head,
            log=overview.log,
            events=EventCount(total=overview.totals.stored, per_second=round(speed, 1)),
            dead_letters=overview.totals.dead_letters,
            dead_letter_counts=overview.dead_letters,
            jobs=overview.jobs,
            triggers=overview.triggers,
            streams=overview.streams,
            backlogs=overview.backlogs,
            totals=overview.totals,
            counts=overview.counts,
            scopes=overview.scopes,
            pipelines=overview.pipelines,
            runs=overview.runs,
            task_runs=overview.task_runs,
            recent=overview.recent,
        )
        return self._with_alerts(began, status)

    def _with_last_status(self, began: float, error: ResourceError) -> StatusSnapshot:
        """Return the last readable status, with the reason why there is no newer one. Raises `error` if there is none."""
        if self._snapshot is None:
            raise error
        now = datetime.now(UTC)
        self._unreadable = self._unreadable or Outage(now, str(error), error.hint)
        return self._with_alerts(began, self._snapshot.status.model_copy(update={"now": now}))

    def _with_alerts(self, began: float, status: Status) -> StatusSnapshot:
        alerts = alerts_of(
            status,
            self._store.outage or self._unreadable,
            [*self._store.background.alerts(), *self._local_alerts()],
            self._store.liveness.threshold / 1e6,
        )
        fit = fit_status(status.model_copy(update={"alerts": alerts}))
        frame = f"event: status\ndata: {fit.model_dump_json()}\n\n".encode()
        return StatusSnapshot(began, fit, fit.model_dump_json(exclude={"now"}), frame)

    def _read(self) -> Overview:
        with self._store.reading() as connection:
            return overview(connection, self._store.now(), self._store.liveness, self._unserved)

    def _exposed(self, status: Status) -> bytes:
        with self._store.reading() as connection:
            store_series = series(connection)
        return exposition(status, store_series)

    async def _pause(self, earliest: float) -> None:
        """Wait until `earliest`, then for a commit or `IDLE` seconds, because time alone also changes a status."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, earliest - self._clock())):
                await self._closing.wait()
        if self._closing.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE):
                await self._woken.wait()

    @contextmanager
    def _waking(self) -> Iterator[None]:
        """Wake waiting requests at each commit of the store, while any client follows."""
        loop = asyncio.get_running_loop()

        def committed() -> None:
            if not self._woken.is_set():
                with suppress(RuntimeError):  # the loop has closed since: no client follows any more
                    loop.call_soon_threadsafe(self._woken.set)

        unobserve = self._store.observe(committed)
        try:
            yield
        finally:
            unobserve()
