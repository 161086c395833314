"""The leases of held messages: extended at half-time, and ended when the reader closes.

Each batch is extended by a task of its own, so that a connection that is silent delays no other batch. No lease is in two batches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import structlog

from headrace.errors import HeadraceError
from headrace.sources.leases.leases import Lease, Leases
from headrace.sources.leases.service import Failures, LeaseService, LeaseSettings, batches

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
        self._extending: set[Lease] = set()
        self._errors: dict[Lease, HeadraceError] = {}
        """The leases whose last extension failed."""

    async def run(self) -> None:
        """Extend the leases of which half the time has passed, until it is cancelled. Then no extension is running."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await asyncio.sleep(min(self._shortest / CHECKS_PER_LEASE, MAX_CHECK_SECONDS))
                    due = [lease for lease in self._leases.due(time.monotonic()) if lease not in self._extending]
                    for batch in batches(due, self._service.max_messages):
                        self._extending.update(batch)
                        tasks.create_task(self._extend(batch), name="headrace lease extension")
                    self._name_problem()
        except ExceptionGroup as errors:  # unexpected: the stream ends with the first one
            raise errors.exceptions[0] from None

    def _name_problem(self) -> None:
        """Keep the error of a message that is still held, or end the problem."""
        self._errors = {lease: error for lease, error in self._errors.items() if lease.is_held}
        error = next(iter(self._errors.values()), None)
        if error is not None:
            self._problems[PROBLEM] = str(error)
        else:
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

    async def _extend(self, batch: Sequence[Lease]) -> None:
        """Extend the leases of one batch. An error after which a repetition may succeed is in `_errors`."""
        try:
            async with self._slots:
                # While the task waited, messages were answered. A failed one must come again soon.
                held = [lease for lease in batch if lease.is_held]
                if held:
                    await self._extend_held(held)
        finally:
            self._extending.difference_update(batch)

    async def _extend_held(self, batch: Sequence[Lease]) -> None:
        now, deliveries = time.monotonic(), [lease.deliveries for lease in batch]
        failures: Failures
        try:
            failures = await self._service.set_lease(batch, self._seconds)
        except HeadraceError as error:
            failures = dict.fromkeys(batch, error)
        for lease, delivery in zip(batch, deliveries, strict=True):
            failure = failures.get(lease)
            if isinstance(failure, HeadraceError):
                self._errors[lease] = failure
                self._problems[PROBLEM] = str(failure)
                continue
            self._errors.pop(lease, None)
            if lease.deliveries != delivery:
                continue  # it came again meanwhile: the answer is about its old receipt
            if failure is None:
                self._leases.extend(lease, now)
            elif lease.is_held:
                lease.is_lost = True
                log.warning("lease of a message lost before its answer", message=lease.id, reason=failure)

    async def _release(self, batch: Sequence[Lease]) -> int:
        """End the leases of one batch. Return how many could not be ended."""
        try:
            async with self._slots:
                return len(await self._service.set_lease(batch, 0))
        except HeadraceError as error:
            log.warning("messages not released", messages=len(batch), error=str(error))
            return len(batch)
