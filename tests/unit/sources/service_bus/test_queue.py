"""The requests about a queue without sessions, on a receiver in memory."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from headrace.sources.decoding import DECODERS
from headrace.sources.leases.leases import Lease
from headrace.sources.service_bus.queue import UNREAD_PART, QueueService

LOCK_SECONDS = 60


class Receiver:
    """Has the requests of a receiver, and the locks that have ended."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, list[UUID]]] = []
        self.lost: dict[UUID, str] = {}

    async def receive(self, seconds: float) -> list[Any]:
        del seconds
        return []

    async def give_back(self) -> None:
        self.requests.append(("give back", []))

    async def complete(self, tokens: Sequence[UUID]) -> dict[UUID, str]:
        return self._answer("complete", tokens)

    async def renew(self, tokens: Sequence[UUID]) -> dict[UUID, str]:
        return self._answer("renew", tokens)

    async def abandon(self, tokens: Sequence[UUID]) -> dict[UUID, str]:
        return self._answer("abandon", tokens)

    def _answer(self, name: str, tokens: Sequence[UUID]) -> dict[UUID, str]:
        self.requests.append((name, [*tokens]))
        return {token: self.lost[token] for token in tokens if token in self.lost}


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def service(receiver: Receiver) -> QueueService:
    lent: Any = receiver
    return QueueService(SimpleNamespace(), lent, "orders", DECODERS["json"])


def leases(count: int) -> list[Lease]:
    return [Lease(str(number), str(uuid4()), None, "orders", 1, number) for number in range(count)]


async def test_the_failures_of_a_request_are_those_of_the_locks_that_have_ended(receiver: Receiver, service: QueueService) -> None:
    held = leases(5)
    receiver.lost = {UUID(held[1].receipt): "gone", UUID(held[3].receipt): "gone too"}
    expected = {held[1]: "gone", held[3]: "gone too"}
    assert await service.acknowledge(held) == expected
    assert await service.set_lease(held, LOCK_SECONDS) == expected
    assert await service.set_lease(held, 0) == expected
    tokens = [UUID(lease.receipt) for lease in held]
    assert receiver.requests == [("complete", tokens), ("renew", tokens), ("abandon", tokens)]


async def test_what_was_sent_ahead_is_given_back_if_the_stream_has_not_read_for_a_part_of_the_lock(
    receiver: Receiver, service: QueueService
) -> None:
    await service.poll()()
    service._polled_at -= LOCK_SECONDS / UNREAD_PART - 1
    await service.set_lease(leases(1), LOCK_SECONDS)
    assert [name for name, _ in receiver.requests] == ["renew"]
    service._polled_at -= 2
    await service.set_lease(leases(1), LOCK_SECONDS)
    assert [name for name, _ in receiver.requests] == ["renew", "give back", "renew"]
    await service.poll()()
    await service.set_lease(leases(1), LOCK_SECONDS)
    assert [name for name, _ in receiver.requests] == ["renew", "give back", "renew", "renew"], "the stream reads again"
