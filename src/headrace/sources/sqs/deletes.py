"""Deletion of answered messages: those of all lanes that wait, in requests of ten, several at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from headrace.errors import HeadraceError
from headrace.sources.group_commit import GroupCommit
from headrace.sources.sqs.client import SqsClient, batches, retriable
from headrace.sources.sqs.leases import Lease, Leases
from headrace.sources.sqs.service_errors import failure_text

MAX_DELETES: Final = 16
"""Requests at once."""
WHAT: Final = "The messages cannot be deleted"

log = structlog.get_logger(__name__)


class Deletes:
    """Deletes held messages. A message whose receipt is too old is remembered, and deleted when it comes again."""

    def __init__(self, client: SqsClient, leases: Leases) -> None:
        self._client = client
        self._leases = leases
        self._commits: GroupCommit[Sequence[Lease], HeadraceError | None] = GroupCommit(self._delete_groups)
        self._slots = asyncio.Semaphore(MAX_DELETES)
        self._tasks: set[asyncio.Task[None]] = set()

    async def delete(self, leases: Sequence[Lease]) -> None:
        """Delete answered messages. Raises the first error after which a repetition may succeed. Deleted messages stay deleted."""
        error = await self._commits.submit(leases) if leases else None
        if error is not None:
            raise error

    def delete_soon(self, leases: Sequence[Lease]) -> None:
        """Delete messages that have nothing to be answered. If that fails, they come again."""
        task = asyncio.create_task(self._delete_or_abandon(leases), name="headrace deletion of messages")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Wait until no request is running."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._commits.aclose()

    async def _delete_or_abandon(self, leases: Sequence[Lease]) -> None:
        try:
            await self.delete(leases)
        except HeadraceError as error:
            log.warning("messages without a raw event not deleted", messages=len(leases), error=str(error))
            for lease in leases:
                self._leases.abandon(lease)

    async def _delete_groups(self, groups: list[Sequence[Lease]]) -> list[HeadraceError | None]:
        leases = list(dict.fromkeys(lease for group in groups for lease in group if lease.is_held))
        failed: dict[Lease, HeadraceError] = {}
        results = await asyncio.gather(*(self._delete_batch(batch) for batch in batches(leases)))
        for errors in results:
            failed |= errors
        return [next((failed[lease] for lease in group if lease in failed), None) for group in groups]

    async def _delete_batch(self, batch: Sequence[Lease]) -> dict[Lease, HeadraceError]:
        """Delete up to ten messages. Return the messages that another attempt may delete, with the error."""
        try:
            async with self._slots:
                failures = await self._client.delete(batch)
        except HeadraceError as error:
            return dict.fromkeys(batch, error)
        errors: dict[Lease, HeadraceError] = {}
        rejected: list[str] = []
        for lease in batch:
            failure = failures.get(lease)
            if failure is None:
                self._leases.delete(lease)
            elif (again := retriable(WHAT, failure)) is not None:
                errors[lease] = again
            else:
                self._leases.finish(lease)
                rejected.append(failure_text(failure))
        if rejected:
            log.info("messages not deleted with old receipts", messages=len(rejected), reason=rejected[0])
        return errors
