from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import StreamError
from headrace.sources.leases.extensions import PROBLEM, LeaseExtensions
from headrace.sources.leases.leases import Lease, Leases, Part
from headrace.sources.leases.service import Failures, LeaseService, LeaseSettings


class AwayService:
    """Refuses every extension."""

    max_messages = 10

    async def set_lease(self, leases: Sequence[Lease], seconds: int) -> Failures:
        raise StreamError("The queue cannot be reached.")


async def test_the_error_of_an_extension_ends_when_the_messages_are_answered() -> None:
    leases = Leases(0.1, 30, is_ordered=False)
    lease = leases.receive("m", "receipt", None, "q", 1, time.monotonic() - 0.1)
    assert lease is not None
    problems: dict[str, str] = {}
    settings = LeaseSettings("q", first=0.1, lease=30, poll_seconds=1, is_ordered=False)
    task = asyncio.create_task(LeaseExtensions(cast("LeaseService", cast(Any, AwayService())), leases, settings, problems).run())
    async with asyncio.timeout(30):
        while PROBLEM not in problems:
            await asyncio.sleep(0.01)
        assert leases.answer([AdvanceItem(Part(lease, 0), AdvanceOutcome(1, 0))]) == [lease]
        leases.drop(lease)
        while problems:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
