"""The visibility timeouts of held messages: extended at half-time, and set to 0 at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import structlog

from headrace.errors import HeadraceError
from headrace.sources.sqs.client import SqsClient, batches, retriable
from headrace.sources.sqs.leases import Lease, Leases

MAX_REQUESTS: Final = 8
RELEASE_SECONDS: Final = 5.0
CHECKS_PER_TIMEOUT: Final = 10
MAX_CHECK_SECONDS: Final = 5.0
PROBLEM: Final = "visibility"

log = structlog.get_logger(__name__)


class VisibilityTimeouts:
    """Extends and ends the leases of one opening. Errors are in `problems`, and the requests are repeated."""

    def __init__(self, client: SqsClient, leases: Leases, seconds: int, problems: dict[str, str]) -> None:
        self._client = client
        self._leases = leases
        self._seconds = seconds
        self._problems = problems
        self._slots = asyncio.Semaphore(MAX_REQUESTS)

    async def run(self) -> None:
        """Extend the leases of which half the timeout has passed, until it is cancelled."""
        while True:
            await asyncio.sleep(min(self._seconds / CHECKS_PER_TIMEOUT, MAX_CHECK_SECONDS))
            due = self._leases.due(time.monotonic())
            if due:
                errors = await asyncio.gather(*(self._extend(batch) for batch in batches(due)))
                error = next((one for one in errors if one is not None), None)
                if error is not None:
                    self._problems[PROBLEM] = str(error)
                else:
                    self._problems.pop(PROBLEM, None)

    async def release(self) -> None:
        """Make all held messages visible, the first one of each group last. What fails becomes visible by itself."""
        failed = 0
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                for step in self._leases.to_release(time.monotonic()):
                    failed += sum(await asyncio.gather(*(self._release(batch) for batch in batches(step))))
        except TimeoutError:
            log.warning("messages not released in time", seconds=RELEASE_SECONDS)
        if failed:
            log.warning("messages not released", messages=failed, visible_within_seconds=self._seconds)

    async def _extend(self, batch: Sequence[Lease]) -> HeadraceError | None:
        """Extend up to ten leases. Return the error if a repetition may succeed."""
        now = time.monotonic()
        try:
            async with self._slots:
                failures = await self._client.set_visibility(batch, self._seconds)
        except HeadraceError as error:
            return error
        first: HeadraceError | None = None
        for lease in batch:
            failure = failures.get(lease)
            if failure is None:
                self._leases.extend(lease, now)
            elif (again := retriable("The visibility timeouts cannot be extended", failure)) is not None:
                first = first or again
            elif lease.is_held:
                lease.is_lost = True
                log.warning("message visible to other readers before its answer", message=lease.id)
        return first

    async def _release(self, batch: Sequence[Lease]) -> int:
        """Release up to ten leases. Return how many could not be."""
        try:
            async with self._slots:
                return len(await self._client.set_visibility(batch, 0))
        except HeadraceError as error:
            log.warning("messages not released", messages=len(batch), error=str(error))
            return len(batch)
