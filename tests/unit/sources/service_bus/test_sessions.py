from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from azure.servicebus import exceptions
from azure.servicebus.amqp import AmqpAnnotatedMessage

from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.decoding import DECODERS
from headrace.sources.leases.leases import Lease
from headrace.sources.leases.service import Received
from headrace.sources.service_bus import receiver as receivers
from headrace.sources.service_bus import sessions as module
from headrace.sources.service_bus.sessions import LOST, SessionService
from support.sources.reading import until

LOCK_SECONDS = 30


class Library:
    """A queue with sessions in memory. Its receivers have the requests of the library's that are used."""

    def __init__(self) -> None:
        self.messages: defaultdict[str, list[Any]] = defaultdict(list)
        self.held: dict[str, LibraryReceiver] = {}
        self.error: Exception | None = None
        """What each request for a session raises."""
        self.lost: set[str] = set()
        """Sessions whose lock has ended."""
        self.completed: list[bytes] = []
        self.renewals: list[str] = []
        self.is_closed = False
        self.waiting = 0

    def send(self, session: str, *bodies: bytes) -> None:
        for body in bodies:
            number = sum(map(len, self.messages.values())) + len(self.completed)
            annotations: Any = {b"x-opt-sequence-number": number, b"x-opt-enqueued-time": 0}
            amqp = AmqpAnnotatedMessage(data_body=body, properties={"group_id": session}, annotations=annotations)
            self.messages[session].append(SimpleNamespace(raw_amqp_message=amqp, lock_token=None))

    def make(self) -> LibraryReceiver:
        return LibraryReceiver(self)

    async def close(self) -> None:
        self.is_closed = True


class LibraryReceiver:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._received = 0
        link = SimpleNamespace(_received_delivery_tags=set())
        self._handler = SimpleNamespace(
            _received_messages=asyncio.Queue(), _connection=None, _link=link, settle_messages_async=self._settle_messages
        )
        self._numbers = 0
        self.session: Any = None

    @property
    def id(self) -> str:
        return str(self.session.session_id)

    def _create_handler(self, auth: Any) -> None:
        raise AssertionError

    async def __aenter__(self) -> LibraryReceiver:
        if self.session is None:
            self._library.waiting += 1
            try:
                id = await self._next_session()
            finally:
                self._library.waiting -= 1
            self.session = SimpleNamespace(session_id=id, renew_lock=self._renew_lock)
            self._library.held[id] = self
        return self

    async def peek_messages(self, count: int, *, sequence_number: int, **options: Any) -> list[Any]:
        self._check()
        numbers = [(one.raw_amqp_message.annotations[b"x-opt-sequence-number"], one) for one in self._library.messages[self.id]]
        return [one for number, one in numbers if number >= sequence_number][:count]

    async def close(self) -> None:
        if self.session is not None:
            self._library.held.pop(self.id, None)

    async def receive_messages(self, max_message_count: int, max_wait_time: float) -> list[Any]:
        for _ in range(10):
            self._check()
            found = self._library.messages[self.id][self._received :]
            if found:
                self._received += len(found)
                for message in found:
                    message.lock_token = uuid4()
                    message._delivery_id, message._delivery_tag = self._numbers, message.lock_token.bytes_le
                    self._handler._link._received_delivery_tags.add(message._delivery_tag)
                    self._numbers += 1
                return found
            await asyncio.sleep(max_wait_time / 10)
        return []

    async def _next_session(self) -> str:
        for _ in range(10):
            if self._library.error is not None:
                raise self._library.error
            for id, messages in self._library.messages.items():
                if messages and id not in self._library.held and id not in self._library.lost:
                    return id
            await asyncio.sleep(0.01)
        raise exceptions.OperationTimeoutError

    async def _do_retryable_operation(self, operation: Callable[..., Any], **options: Any) -> None:
        await operation(**options)

    async def _settle_messages(self, numbers: tuple[int, int], tag: bytes, outcome: str, **options: Any) -> None:
        assert (outcome, options["await_outcome"]) == ("accepted", True)
        assert tag in self._handler._link._received_delivery_tags
        self._check()
        messages = self._library.messages[self.id]
        first, last = numbers
        for message in [one for one in messages if one.lock_token is not None and first <= one._delivery_id <= last]:
            messages.remove(message)
            self._received -= 1
            self._library.completed.append(b"".join(message.raw_amqp_message.body))

    async def _renew_lock(self, **options: Any) -> None:
        self._check()
        self._library.renewals.append(self.id)

    def _check(self) -> None:
        if self.id in self._library.lost:
            raise exceptions.SessionLockLostError(message="The lock on the session has expired.")


class Opened:
    """A service, and what it has delivered."""

    def __init__(self, library: Library, *, limit: int = 20, lock_seconds: int = LOCK_SECONDS) -> None:
        self.library = library
        self.service = SessionService(library, library.make, "It failed", DECODERS["json"], lock_seconds=lock_seconds, limit=limit)

    async def take(self, count: int) -> list[Received]:
        """Return the next messages. Wait until there are `count`."""
        taken: list[Received] = []
        async with asyncio.timeout(5):
            while len(taken) < count:
                taken += await self.poll()
        return taken

    async def poll(self) -> list[Received]:
        answer = await self.service.poll()()
        assert not answer.is_full
        return [*answer.messages]


@pytest.fixture
async def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setattr(module, "TURN_SECONDS", 0.02)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(receivers, "TURN_SECONDS", 0.02)
    return Library()


@pytest.fixture
async def opened(library: Library) -> AsyncIterator[Opened]:
    opened = Opened(library)
    yield opened
    async with asyncio.timeout(20):
        await opened.service.aclose()


def bodies(messages: list[Received]) -> list[bytes]:
    return [event.data for message in messages for event in message.events]


def lease(message: Received) -> Lease:
    return Lease(message.id, message.receipt, message.group, message.lane, 1, 0)


async def test_each_session_is_a_lane_in_its_order(opened: Opened) -> None:
    opened.library.send("a", b"1", b"2", b"3")
    opened.library.send("b", b"4", b"5")
    taken = await opened.take(5)
    for session, expected in (("a", [b"1", b"2", b"3"]), ("b", [b"4", b"5"])):
        own = [one for one in taken if one.lane == session]
        assert bodies(own) == expected
        assert {one.group for one in own} == {session}
    assert await opened.service.acknowledge([lease(one) for one in taken]) == {}
    assert sorted(opened.library.completed) == [b"1", b"2", b"3", b"4", b"5"]


async def test_no_message_that_was_received_already_is_delivered_after_a_failed_one(opened: Opened) -> None:
    opened.library.send("a", b"1")
    await opened.take(1)
    opened.library.send("a", b"2")
    await until(lambda: not opened.service._arrived.empty())
    opened.service.stop({"a"})
    assert bodies(await opened.poll()) == []


async def test_no_message_that_is_sent_later_is_delivered_after_a_failed_one(opened: Opened) -> None:
    opened.library.send("a", b"1")
    await opened.take(1)
    opened.service.stop({"a", "unknown", None})
    opened.library.send("a", b"2")
    assert [bodies(await opened.poll()) for _ in range(3)] == [[]] * 3


async def test_the_locks_of_sessions_are_renewed_without_a_poll_but_not_after_a_failed_message(library: Library) -> None:
    opened = Opened(library, lock_seconds=0)
    library.send("b", b"2")
    await opened.take(1)
    await until(lambda: library.renewals.count("b") > 3)
    await opened.service.aclose()
    stopped = Opened(library, lock_seconds=1)
    library.send("a", b"1")
    await stopped.take(2)
    stopped.service.stop({"a"})
    library.renewals.clear()
    await until(lambda: library.renewals.count("b") > 1)
    await stopped.service.aclose()
    assert library.renewals.count("a") <= 1, "the one that was due when the message failed"


async def test_a_failed_message_and_all_later_ones_come_again_in_their_order(library: Library) -> None:
    opened = Opened(library, lock_seconds=0)
    library.send("a", b"1", b"2", b"3")
    first = await opened.take(3)
    assert await opened.service.acknowledge([lease(first[0])]) == {}
    opened.service.stop({"a"})
    again = await opened.take(2)
    assert bodies(again) == [b"2", b"3"]
    assert {one.id for one in again} == {one.id for one in first[1:]}
    old = lease(first[1])
    (failure,) = (await opened.service.acknowledge([old])).values()
    assert LOST in str(failure)
    await opened.service.aclose()


async def test_another_session_goes_on_after_a_failed_message(opened: Opened) -> None:
    opened.library.send("a", b"1")
    await opened.take(1)
    opened.service.stop({"a"})
    opened.library.send("b", b"2")
    assert bodies(await opened.take(1)) == [b"2"]


async def test_leases_of_a_session_that_has_ended_are_reported_as_lost(opened: Opened) -> None:
    opened.library.send("a", b"1")
    (taken,) = await opened.take(1)
    held = lease(taken)
    other, old = Lease("9", str(uuid4()), "b", "b", 1, 0), Lease("1", str(uuid4()), "a", "a", 1, 0)
    for answer in (await opened.service.set_lease([held, other, old], LOCK_SECONDS), await opened.service.acknowledge([held, other, old])):
        assert {one: LOST in str(failure) for one, failure in answer.items()} == {other: True, old: True}
        assert answer[other] == LOST, "another reader has it"
    assert opened.library.completed == [b"1"]


@pytest.mark.parametrize("request_name", ["acknowledge", "set_lease"])
async def test_a_session_whose_lock_has_ended_is_lost_with_all_its_messages(opened: Opened, request_name: str) -> None:
    opened.library.send("a", b"1", b"2")
    opened.library.send("b", b"3")
    leases = [lease(one) for one in await opened.take(3)]
    of_a = [one for one in leases if one.lane == "a"]
    opened.library.lost.add("a")
    rest = () if request_name == "acknowledge" else (LOCK_SECONDS,)
    if request_name == "set_lease":
        await until(lambda: "a" not in opened.library.held)
    answer = await getattr(opened.service, request_name)(leases, *rest)
    assert answer.keys() == {*of_a}
    await until(lambda: "a" not in opened.library.held)
    opened.library.lost.clear()
    assert bodies(await opened.take(2)) == [b"1", b"2"], "they come again"


async def test_the_end_of_leases_is_that_of_their_session(opened: Opened) -> None:
    opened.library.send("a", b"1")
    leases = [lease(one) for one in await opened.take(1)]
    assert await opened.service.set_lease(leases, 0) == {}
    assert "a" in opened.library.held


async def test_no_session_is_no_problem(opened: Opened) -> None:
    assert [await opened.poll() for _ in range(5)] == [[]] * 5


async def test_a_service_that_is_away_is_an_error_until_it_answers(opened: Opened) -> None:
    opened.library.error = exceptions.ServiceBusConnectionError(message="away")
    await until_failed(opened, StreamError)
    with pytest.raises(StreamError, match="It failed: the service does not answer: away"):
        await opened.poll()
    opened.library.error = None
    opened.library.send("a", b"1")
    await until(lambda: opened.service._failure is None)
    assert bodies(await opened.take(1)) == [b"1"]
    assert await opened.poll() == []


async def test_a_service_that_answers_again_without_a_session_is_no_problem(opened: Opened) -> None:
    opened.library.error = exceptions.ServiceBusConnectionError(message="away")
    await until_failed(opened, StreamError)
    opened.library.error = None
    await until(lambda: opened.service._failure is None)
    assert await opened.poll() == []


async def test_an_error_that_stays_ends_the_stream(opened: Opened) -> None:
    opened.library.error = exceptions.MessagingEntityNotFoundError()
    await until_failed(opened, UpstreamError)
    for _ in range(2):
        with pytest.raises(UpstreamError, match="It failed"):
            await opened.poll()


async def until_failed(opened: Opened, kind: type[HeadraceError]) -> None:
    """Wait until requests for a session have failed."""
    await until(lambda: isinstance(opened.service._failure, kind))


async def test_sessions_are_read_after_one_was_lost_while_it_was_opened(opened: Opened) -> None:
    opened.library.error = exceptions.SessionLockLostError()
    await asyncio.sleep(0.1)
    opened.library.error = None
    opened.library.send("a", b"1")
    assert bodies(await opened.take(1)) == [b"1"]


async def test_an_empty_session_is_given_back_when_its_messages_are_answered(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    opened.library.send("a", b"1")
    leases = [lease(one) for one in await opened.take(1)]
    await asyncio.sleep(0.2)
    assert "a" in opened.library.held
    await opened.service.acknowledge(leases)
    await until(lambda: not opened.library.held)


async def test_no_more_sessions_are_held_than_the_limit(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    opened = Opened(library, limit=2)
    for session in "abcde":
        library.send(session, b"1")
    taken: list[str] = []
    while len(taken) < 5:
        for one in await opened.take(1):
            assert len(library.held) <= 2
            taken.append(one.lane)
            await opened.service.acknowledge([lease(one)])
    assert sorted(taken) == [*"abcde"]
    await opened.service.aclose()


@pytest.mark.parametrize(("sessions", "count"), [(0, 0), (1, 10), (3, 150), (5, 200)])
async def test_a_close_gives_all_sessions_back(library: Library, sessions: int, count: int) -> None:
    """Nobody takes the messages of the readers, which wait for room."""
    opened = Opened(library)
    for number in range(sessions):
        library.send(f"s{number}", *[b"1"] * count)
    await until(lambda: len(library.held) == sessions)
    await asyncio.sleep(0.1)
    async with asyncio.timeout(3):
        await opened.service.aclose()
    assert (library.held, library.waiting, library.is_closed) == ({}, 0, True)
