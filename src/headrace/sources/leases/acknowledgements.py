"""Acknowledgement of answered messages: those of all lanes that wait, in batches, several at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from headrace.errors import HeadraceError
from headrace.sources.group_commit import GroupCommit
from headrace.sources.leases.leases import Lease, Leases
from headrace.sources.leases.service import LeaseService, batches

MAX_REQUESTS: Final = 16
"""Requests at once."""

log = structlog.get_logger(__name__)


class Acknowledgements:
    """Acknowledges held messages. A message whose receipt is too old is remembered, and acknowledged when it comes again."""

    def __init__(self, service: LeaseService, leases: Leases) -> None:
        self._service = service
        self._leases = leases
        self._commits: GroupCommit[Sequence[Lease], HeadraceError | None] = GroupCommit(self._acknowledge_groups)
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def acknowledge(self, leases: Sequence[Lease]) -> None:
        """Acknowledge answered messages. Raises the first error after which a repetition may succeed. The others stay acknowledged."""
        error = await self._commits.submit(leases) if leases else None
        if error is not None:
            raise error

    def acknowledge_soon(self, leases: Sequence[Lease]) -> None:
        """Acknowledge messages that have nothing to be answered. If that fails, they come again."""
        task = asyncio.create_task(self._acknowledge_or_abandon(leases), name="headrace acknowledgement of messages")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Wait until no request is running."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._commits.aclose()

    async def _acknowledge_or_abandon(self, leases: Sequence[Lease]) -> None:
        try:
            await self.acknowledge(leases)
        except HeadraceError as error:
            log.warning("messages without a raw event not acknowledged", messages=len(leases), error=str(error))
            for lease in leases:
                self._leases.abandon(lease)

    async def _acknowledge_groups(self, groups: list[Sequence[Lease]]) -> list[HeadraceError | None]:
        leases = list(dict.fromkeys(lease for group in groups for lease in group if lease.is_held))
        failed: dict[Lease, HeadraceError] = {}
        results = await asyncio.gather(*(self._acknowledge_batch(batch) for batch in batches(leases, self._service.max_messages)))
        for errors in results:
            failed |= errors
        return [next((failed[lease] for lease in group if lease in failed), None) for group in groups]

    async def _acknowledge_batch(self, batch: Sequence[Lease]) -> dict[Lease, HeadraceError]:
        """Acknowledge one batch. Return the messages for which another attempt may succeed, with the error."""
        try:
            async with self._slots:
                failures = await self._service.acknowledge(batch)
        except HeadraceError as error:
            return dict.fromkeys(batch, error)
        errors: dict[Lease, HeadraceError] = {}
        rejected: list[str] = []
        for lease in batch:
            failure = failures.get(lease)
            if failure is None:
                self._leases.drop(lease)
            elif isinstance(failure, HeadraceError):
                errors[lease] = failure
            else:
                self._leases.finish(lease)
                rejected.append(failure)
        if rejected:
            log.info("messages not acknowledged with old receipts", messages=len(rejected), reason=rejected[0])
        return errors
