"""Whether a stream may read on: there is an end to what may be outstanding, and one may say that nothing more is to be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.core.ledger import Ledger
from headrace.streams.policy import StreamPolicy


class Room:
    """The room of one stream. Whoever makes some says so with `made`."""

    def __init__(self, ledger: Ledger, policy: StreamPolicy) -> None:
        self._ledger = ledger
        self._policy = policy
        self._made = asyncio.Event()
        self.most = policy.max_outstanding
        """How many raw events may be outstanding."""

    def hold(self) -> None:
        """Read nothing from now on; what the upstream has under way still comes."""
        self.most = 0

    def release(self) -> None:
        """Read again."""
        self.most = self._policy.max_outstanding
        self._made.set()

    def made(self) -> None:
        """Let those go on who wait for room."""
        self._made.set()

    def is_there(self) -> bool:
        """Whether the next raw event may be read."""
        if self._ledger.full and self._policy.overflow != "fail" and self._is_blocked():
            return False
        return self._ledger.outstanding < self.most

    async def wait(self) -> None:
        """Wait until there is room."""
        while not self.is_there():
            self._made.clear()
            await self._made.wait()

    async def emptied(self, ended: Callable[[], bool]) -> None:
        """Wait until nothing is outstanding, or the stream has `ended`."""
        while self._ledger.outstanding and not ended():
            self._made.clear()
            await self._made.wait()

    def _is_blocked(self) -> bool:
        return self._policy.overflow == "block" or any(not reader.registered for reader in self._ledger.full)
