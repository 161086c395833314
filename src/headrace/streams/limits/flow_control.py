"""Flow control of a stream: limits of outstanding raw events and bytes, and pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.core.ledger.ledger import Ledger
from headrace.core.memory_budget import MemoryBudget
from headrace.streams.limits.policy import StreamPolicy

STEPS: Final = 256
"""The usage of a stream is accounted in the budget in steps of the limit divided by this number."""


class FlowControl:
    """The capacity of one stream. Code that frees capacity calls `notify`."""

    def __init__(self, ledger: Ledger, policy: StreamPolicy, budget: MemoryBudget) -> None:
        self._ledger = ledger
        self._policy = policy
        self._budget = budget
        self._taken = 0
        self._step = budget.limit // STEPS
        self.allowance = 0
        """Bytes up to which the stream may read without checking the budget."""
        self._capacity_freed = asyncio.Event()
        self.max_outstanding = policy.max_outstanding
        """Limit of outstanding raw events; 0 while reading is paused."""

    def pause(self) -> None:
        """Pause reading. Raw events that the upstream is already delivering are still read."""
        self.max_outstanding = 0

    def resume(self) -> None:
        """Resume reading."""
        self.max_outstanding = self._policy.max_outstanding
        self._capacity_freed.set()

    def notify(self) -> None:
        """Wake the tasks that wait for capacity."""
        size = self._ledger.size
        if self._taken - size >= self._step:
            self._account(size)
        self._capacity_freed.set()

    def close(self) -> None:
        """Return all bytes to the budget."""
        self._account(0)

    def has_capacity(self) -> bool:
        """Whether the next raw event may be read."""
        if self._ledger.full and self._policy.overflow != "fail" and self._is_blocked():
            return False
        return self._ledger.outstanding < self.max_outstanding and (self._ledger.size < self.allowance or self._is_admitted())

    async def wait(self) -> None:
        """Wait until there is capacity."""
        self._budget.waiting[self._capacity_freed.set] = None
        try:
            while not self.has_capacity():
                self._capacity_freed.clear()
                await self._capacity_freed.wait()
        finally:
            del self._budget.waiting[self._capacity_freed.set]

    async def freed(self) -> None:
        """Wait until some capacity was freed."""
        self._capacity_freed.clear()
        await self._capacity_freed.wait()

    async def wait_empty(self, ended: Callable[[], bool]) -> None:
        """Wait until nothing is outstanding, or the stream has `ended`."""
        while self._ledger.outstanding and not ended():
            self._capacity_freed.clear()
            await self._capacity_freed.wait()

    def _is_admitted(self) -> bool:
        size = self._ledger.size
        self._account(size)
        if self._budget.admits(size):
            return True
        self.allowance = 0
        return False

    def _account(self, size: int) -> None:
        """Account the bytes of this stream in the budget."""
        change, self._taken = size - self._taken, size
        self.allowance = size + self._step
        if change:
            self._budget.change(change)

    def _is_blocked(self) -> bool:
        return self._policy.overflow == "block" or any(not reader.registered for reader in self._ledger.full)
