"""Settles the answers of readers in their backlogs: one reader's answers in order, several readers concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import Subscriber
from headrace.streams.backlog import Backlog
from headrace.streams.limits.close_grace import CloseDeadline, is_cancelled
from headrace.streams.limits.policy import StreamPolicy
from headrace.streams.limits.shutdown_deadline import ShutdownDeadline

log = structlog.get_logger(__name__)


class BacklogSettler:
    """Settles answers in the backlogs. A backlog that keeps failing is given up; its raw events come again after a restart."""

    def __init__(
        self, ledger: Ledger, policy: StreamPolicy, grace: CloseDeadline, backlog_of: Callable[[Subscriber], Backlog | None]
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._backlog_of = backlog_of
        self._deadline = ShutdownDeadline(grace)
        self._wake = asyncio.Event()
        self._busy: set[Subscriber] = set()

    def wake(self) -> None:
        """Wake the backlog settler: there are answers."""
        self._wake.set()

    def finish(self) -> None:
        """Make `run` return when all answers are settled."""
        self._deadline.end()
        self._wake.set()

    async def run(self) -> None:
        """Settle until `finish`."""
        settling = self._ledger.settling
        async with asyncio.TaskGroup() as calls:
            while not (self._deadline.ended and not self._busy and not settling):
                await self._wake.wait()
                self._wake.clear()
                for reader in [reader for reader in settling if reader not in self._busy]:
                    del settling[reader]
                    self._busy.add(reader)
                    calls.create_task(self._settle(reader), name="headrace settle")

    async def _settle(self, reader: Subscriber) -> None:
        answers, reader.answers = reader.answers, []
        backlog = self._backlog_of(reader)
        first_seconds, max_seconds = self._policy.advance_backoff
        for attempt in range(self._policy.advance_attempts):
            if backlog is None or (attempt and not await self._deadline.pause(first_seconds, max_seconds, attempt)):
                break
            try:
                async with self._deadline.timeout(None):
                    await backlog.settle(answers)
            except (Exception, asyncio.CancelledError):
                if is_cancelled():
                    raise
                log.exception("Backlog is not settled", trigger_id=reader.trigger_id, answers=len(answers))
            else:
                self._ledger.settled(reader, [number for number, _ in answers])
                break
        self._busy.discard(reader)
        self._wake.set()
