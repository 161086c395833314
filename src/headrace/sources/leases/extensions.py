"""The leases of held messages: extended at half-time, and ended when the reader closes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import structlog

from headrace.errors import HeadraceError
from headrace.sources.leases.leases import Lease, Leases
from headrace.sources.leases.service import LeaseService, LeaseSettings, batches

MAX_REQUESTS: Final = 8
RELEASE_SECONDS: Final = 5.0
CHECKS_PER_LEASE: Final = 10
MAX_CHECK_SECONDS: Final = 5.0
PROBLEM: Final = "leases"

log = structlog.get_logger(__name__)


class LeaseExtensions:
    """Extends and ends the leases of one opening. Errors are in `problems`, and the requests are repeated."""

    def __init__(self, service: LeaseService, leases: Leases, settings: LeaseSettings, problems: dict[str, str]) -> None:
        self._service = service
        self._leases = leases
        self._seconds = settings.lease
        self._shortest = min(settings.first, settings.lease)
        self._problems = problems
        self._slots = asyncio.Semaphore(MAX_REQUESTS)

    async def run(self) -> None:
        """Extend the leases of which half the time has passed, until it is cancelled."""
        while True:
            await asyncio.sleep(min(self._shortest / CHECKS_PER_LEASE, MAX_CHECK_SECONDS))
            due = self._leases.due(time.monotonic())
            errors = await asyncio.gather(*(self._extend(batch) for batch in batches(due, self._service.max_messages)))
            error = next((one for one in errors if one is not None), None)
            if error is not None:
                self._problems[PROBLEM] = str(error)
            else:  # also if nothing is due any more: the messages of an earlier error are answered
                self._problems.pop(PROBLEM, None)

    async def release(self) -> None:
        """End the leases of all held messages, that of the first one of each group last. What fails ends by itself."""
        failed = 0
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                for step in self._leases.to_release(time.monotonic()):
                    failed += sum(await asyncio.gather(*(self._release(batch) for batch in batches(step, self._service.max_messages))))
        except TimeoutError:
            log.warning("messages not released in time", seconds=RELEASE_SECONDS)
        if failed:
            log.warning("messages not released", messages=failed, released_within_seconds=self._seconds)

    async def _extend(self, batch: Sequence[Lease]) -> HeadraceError | None:
        """Extend the leases of one batch. Return the error if a repetition may succeed."""
        now = time.monotonic()
        try:
            async with self._slots:
                failures = await self._service.set_lease(batch, self._seconds)
        except HeadraceError as error:
            return error
        first: HeadraceError | None = None
        for lease in batch:
            failure = failures.get(lease)
            if failure is None:
                self._leases.extend(lease, now)
            elif isinstance(failure, HeadraceError):
                first = first or failure
            elif lease.is_held:
                lease.is_lost = True
                log.warning("lease of a message lost before its answer", message=lease.id, reason=failure)
        return first

    async def _release(self, batch: Sequence[Lease]) -> int:
        """End the leases of one batch. Return how many could not be ended."""
        try:
            async with self._slots:
                return len(await self._service.set_lease(batch, 0))
        except HeadraceError as error:
            log.warning("messages not released", messages=len(batch), error=str(error))
            return len(batch)
