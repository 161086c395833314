"""Whether a stream may read on: outstanding events are limited, and reading can be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.core.ledger.ledger import Ledger
from headrace.core.memory_budget import MemoryBudget
from headrace.streams.limits.policy import StreamPolicy

STEPS: Final = 256
"""A stream may hold more or less by one part in so many of the budget before the budget learns of it."""


class FlowControl:
    """The room of one stream. Whoever makes some says so with `made`."""

    def __init__(self, ledger: Ledger, policy: StreamPolicy, budget: MemoryBudget) -> None:
        self._ledger = ledger
        self._policy = policy
        self._budget = budget
        self._taken = 0
        self._step = budget.limit // STEPS
        self.allowance = 0
        """Up to how many bytes on the books may be read on without another look at the budget."""
        self._made = asyncio.Event()
        self.most = policy.max_outstanding
        """How many raw events may be outstanding."""

    def pause(self) -> None:
        """Read nothing from now on; what the upstream has under way still comes."""
        self.most = 0

    def resume(self) -> None:
        """Read again."""
        self.most = self._policy.max_outstanding
        self._made.set()

    def notify(self) -> None:
        """Wake the tasks that wait for capacity."""
        size = self._ledger.size
        if self._taken - size >= self._step:
            self._account(size)
        self._made.set()

    def close(self) -> None:
        """Give all back that is on the books."""
        self._account(0)

    def has_capacity(self) -> bool:
        """Whether the next raw event may be read."""
        if self._ledger.full and self._policy.overflow != "fail" and self._is_blocked():
            return False
        return self._ledger.outstanding < self.most and (self._ledger.size < self.allowance or self._is_admitted())

    async def wait(self) -> None:
        """Wait until there is room."""
        self._budget.waiting[self._made.set] = None
        try:
            while not self.has_capacity():
                self._made.clear()
                await self._made.wait()
        finally:
            del self._budget.waiting[self._made.set]

    async def freed(self) -> None:
        """Wait until there may be room, though not for all."""
        self._made.clear()
        await self._made.wait()

    async def wait_empty(self, ended: Callable[[], bool]) -> None:
        """Wait until nothing is outstanding, or the stream has `ended`."""
        while self._ledger.outstanding and not ended():
            self._made.clear()
            await self._made.wait()

    def _is_admitted(self) -> bool:
        size = self._ledger.size
        self._account(size)
        if self._budget.admits(size):
            return True
        self.allowance = 0
        return False

    def _account(self, size: int) -> None:
        """Tell the budget how many bytes this stream holds."""
        change, self._taken = size - self._taken, size
        self.allowance = size + self._step
        if change:
            self._budget.change(change)

    def _is_blocked(self) -> bool:
        return self._policy.overflow == "block" or any(not reader.registered for reader in self._ledger.full)
