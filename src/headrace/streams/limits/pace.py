"""A short wait of a poll for readers with full queues, as long as they keep pace."""

from __future__ import annotations

import asyncio
from typing import Final

from headrace.core.ledger.ledger import Ledger
from headrace.streams.limits.flow_control import FlowControl
from headrace.streams.limits.policy import StreamPolicy

PACE_EVENTS: Final = 64
"""Readers keep pace if they read this many raw events within the policy's `overflow_wait`."""


class Pace:
    """The pace of one stream. A reader in another process takes some time to read; a stuck one must delay no other."""

    def __init__(self, ledger: Ledger, flow_control: FlowControl, policy: StreamPolicy) -> None:
        self._ledger = ledger
        self._flow_control = flow_control
        self._seconds = policy.overflow_wait
        self._clock = policy.clock
        self._begun = float("-inf")
        self._published = 0

    async def caught_up(self) -> bool:
        """Wait until no queue is full. Return False if the readers are too slow to wait for."""
        if not self._seconds:
            return False
        while self._ledger.full:
            now, published = self._clock(), self._ledger.counters.read
            if now >= self._begun + self._seconds:
                # While a queue is full, as many are published as are read.
                slow = now < self._begun + 2 * self._seconds and published < self._published + PACE_EVENTS
                self._begun, self._published = now, published
                if slow:
                    return False
            try:
                async with asyncio.timeout(self._begun + self._seconds - now):
                    await self._flow_control.freed()
            except TimeoutError:
                if self._ledger.counters.read < self._published + PACE_EVENTS:
                    return False
        return True
