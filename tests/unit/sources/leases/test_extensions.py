from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import StreamError
from headrace.sources.leases import extensions as module
from headrace.sources.leases.extensions import PROBLEM, LeaseExtensions
from headrace.sources.leases.leases import Lease, Leases, Part
from headrace.sources.leases.service import Failures, LeaseService, LeaseSettings
from support.sources.reading import until


class AwayService:
    """Refuses every extension."""

    max_messages = 10

    async def set_lease(self, leases: Sequence[Lease], seconds: int) -> Failures:
        raise StreamError("The queue cannot be reached.")


class SilentService:
    """Answers no request for the messages in `silent` until `answered` is set, and then with `failures`."""

    max_messages = 2

    def __init__(self, *silent: str) -> None:
        self.silent = silent
        self.answered = asyncio.Event()
        self.failures: dict[Lease, Exception | str] = {}
        self.requests: list[list[str]] = []
        self.running = 0

    async def set_lease(self, leases: Sequence[Lease], seconds: int) -> Failures:
        self.requests.append([lease.id for lease in leases])
        self.running += 1
        try:
            if any(lease.id in self.silent for lease in leases):
                await self.answered.wait()
                return cast("Failures", self.failures)
            return {}
        finally:
            self.running -= 1

    def count(self, id: str) -> int:
        """Return the number of requests for a message."""
        return sum(id in request for request in self.requests)


def held(leases: Leases, *ids: str) -> list[Lease]:
    """Return the leases of received messages, of which half the time has passed."""
    received = [leases.receive(id, f"{id}-1", None, "q", 1, time.monotonic() - 0.06) for id in ids]
    return [lease for lease in received if lease is not None]


@asynccontextmanager
async def extending(service: SilentService, leases: Leases) -> AsyncIterator[asyncio.Task[None]]:
    """Extend leases of 0.1 s in the block."""
    settings = LeaseSettings("q", first=0.1, lease=30, poll_seconds=1, is_ordered=False)
    task = asyncio.create_task(LeaseExtensions(cast("LeaseService", cast(Any, service)), leases, settings, {}).run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_silent_connection_delays_no_other_lease_and_its_own_is_requested_once() -> None:
    leases, service = Leases(0.1, 0.1, is_ordered=False), SilentService("a")
    a, b = held(leases, "a", "b")
    async with extending(service, leases) as task:
        await until(lambda: service.count("a") == 1)
        held(leases, "c")
        await until(lambda: service.count("c") >= 3)
        assert (service.count("a"), service.count("b")) == (1, 1)
        service.answered.set()
        await until(lambda: service.count("a") >= 3)
        assert not task.done()
    assert (a.is_lost, b.is_lost) == (False, False)


async def test_no_request_runs_after_the_end() -> None:
    leases, service = Leases(0.1, 0.1, is_ordered=False), SilentService("a", "b", "c")
    held(leases, "a", "b", "c")
    async with extending(service, leases):
        await until(lambda: service.running == 2)
    assert service.running == 0


async def test_a_message_that_is_answered_before_its_request_begins_is_not_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REQUESTS", 1)
    leases, service = Leases(0.1, 30, is_ordered=False), SilentService("a")
    _, _, failed, other = held(leases, "a", "b", "failed", "other")
    async with extending(service, leases):
        await until(lambda: service.running == 1)
        await asyncio.sleep(0)
        leases.abandon(failed)
        service.answered.set()
        await until(lambda: other.seconds == 30)
    assert service.requests == [["a", "b"], ["other"]]


async def test_a_message_that_comes_again_during_its_extension_has_its_new_lease() -> None:
    leases, service = Leases(30, 0.1, is_ordered=False), SilentService("a")
    lease = leases.receive("a", "a-1", None, "q", 1, time.monotonic() - 20)
    assert lease is not None
    service.failures = {lease: "the receipt is too old"}
    async with extending(service, leases):
        await until(lambda: service.running == 1)
        assert leases.receive("a", "a-2", None, "q", 1, time.monotonic()) is None
        service.answered.set()
        await until(lambda: service.running == 0)
    assert (lease.receipt, lease.is_lost, lease.seconds) == ("a-2", False, 30)


async def test_an_unexpected_error_of_a_request_ends_the_extensions() -> None:
    error = ZeroDivisionError("unexpected")

    class BrokenService(SilentService):
        async def set_lease(self, leases: Sequence[Lease], seconds: int) -> Failures:
            raise error

    leases = Leases(0.1, 0.1, is_ordered=False)
    held(leases, "a")
    async with extending(BrokenService(), leases) as task:
        await asyncio.wait([task], timeout=30)
        assert task.done()
        assert task.exception() is error


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
