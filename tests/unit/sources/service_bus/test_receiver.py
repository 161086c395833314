from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import exceptions
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import StreamError, UpstreamError
from headrace.sources.service_bus import handler
from headrace.sources.service_bus import receiver as module
from headrace.sources.service_bus.library import Delivery
from headrace.sources.service_bus.receiver import EntityReceiver, Lost, runs_of
from headrace.sources.service_bus.session_receiver import SessionReceiver

LOCKS = [UUID(int=number) for number in range(1, 41)]
WHAT = "'orders' cannot be read"


class Arrived(str):
    """A message, which a test compares as a text."""

    _delivery_id: int
    lock_token: UUID

    def __new__(cls, number: int, text: str) -> Arrived:
        message = super().__new__(cls, text)
        message._delivery_id, message.lock_token = number, UUID(int=1_000 + number)
        return message


class Library:
    """Makes receivers in place of those of the library, and has what they are to answer."""

    def __init__(self) -> None:
        self.made: list[LibraryReceiver] = []
        self.messages: list[str] = []
        self.lost: set[UUID] = set()
        self.requests: list[tuple[str, list[UUID]]] = []
        self.error: Exception | None = None
        """What each request raises."""
        self.errors: list[Exception] = []
        """What the next requests raise, before that."""
        self.answered = asyncio.Event()
        """Set unless requests are to wait for it, or for the end of the connection."""
        self.answered.set()
        self.running = self.most_running = 0

    def make(self) -> LibraryReceiver:
        self.made.append(LibraryReceiver(self))
        return self.made[-1]

    @property
    def done(self) -> set[UUID]:
        """The locks of requests that the service has not refused."""
        return {lock for _, locks in self.requests if not self.lost & {*locks} for lock in locks}


class LibraryReceiver:
    """Has the requests of the library's receiver that are used. The private ones are named as there."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.session: Any = None
        self.closed = 0
        self.aborted = asyncio.Event()
        writer = SimpleNamespace(transport=SimpleNamespace(abort=self.aborted.set))
        self._handler = SimpleNamespace(
            _received_messages=asyncio.Queue(), _connection=SimpleNamespace(_transport=SimpleNamespace(writer=writer))
        )

    def _create_handler(self, auth: Any) -> None:
        raise AssertionError

    async def __aenter__(self) -> LibraryReceiver:
        return self

    async def close(self) -> None:
        self.closed += 1

    async def receive_messages(self, max_message_count: int, max_wait_time: float) -> list[str]:
        await self._answer()
        if not self._library.messages:
            await asyncio.sleep(max_wait_time)
        messages, self._library.messages = self._library.messages, []
        return [Arrived(number, text) for number, text in enumerate(messages)]

    async def peek_messages(self, count: int, *, sequence_number: int, **options: Any) -> list[str]:
        self._library.requests.append((f"peek {count} from {sequence_number}", []))
        await self._answer()
        return self._library.messages[:count]

    async def _do_retryable_operation(self, operation: Callable[..., Awaitable[None]], **options: Any) -> None:
        await operation(**options)

    async def _settle_message_via_mgmt_link(self, settlement: str, lock_tokens: list[UUID]) -> None:
        await self._request(settlement, lock_tokens)

    async def _renew_locks(self, *tokens: UUID, **options: Any) -> None:
        await self._request("renewed", tokens)

    async def _request(self, name: str, locks: Sequence[UUID]) -> None:
        self._library.requests.append((name, [*locks]))
        await self._answer()
        if self._library.lost & {*locks}:
            raise exceptions.MessageLockLostError(message="The lock has expired.")

    async def _answer(self) -> None:
        library = self._library
        library.running += 1
        library.most_running = max(library.running, library.most_running)
        try:
            waiting = [asyncio.ensure_future(library.answered.wait()), asyncio.ensure_future(self.aborted.wait())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for one in waiting:
                one.cancel()
            if self.aborted.is_set():
                raise exceptions.ServiceBusConnectionError(message="The connection was closed.")
            if library.errors:
                raise library.errors.pop(0)
            if library.error is not None:
                raise library.error
        finally:
            library.running -= 1


@pytest.fixture
async def library() -> Library:
    return Library()


def receiver_of(library: Library) -> EntityReceiver:
    return EntityReceiver(library.make, WHAT)


@given(st.sets(st.sampled_from(LOCKS)), st.integers(1, len(LOCKS)), st.sampled_from(["complete", "abandon", "renew"]))
def test_a_request_about_several_locks_names_the_lost_ones_and_does_the_others(lost: set[UUID], count: int, name: str) -> None:
    async def request() -> None:
        library = Library()
        library.lost, locks = lost, LOCKS[:count]
        receiver = receiver_of(library)
        answer: Lost = await getattr(receiver, name)(locks)
        assert answer == dict.fromkeys(lost & {*locks}, "The lock has expired.")
        assert library.done == {*locks} - lost
        assert len(library.requests) <= 1 + 2 * count.bit_length() * len(answer), "few more than the lost ones need"
        assert len(library.made) == 1, "a lost lock does not end the connection"
        await receiver.aclose()

    asyncio.run(request())


async def test_each_request_has_the_state_of_the_service(library: Library) -> None:
    receiver = receiver_of(library)
    for request in (receiver.complete, receiver.abandon, receiver.renew):
        assert await request(LOCKS[:1]) == {}
    assert library.requests == [("completed", LOCKS[:1]), ("abandoned", LOCKS[:1]), ("renewed", LOCKS[:1])]


async def test_a_message_that_is_gone_has_no_lock(library: Library) -> None:
    library.error = exceptions.MessageNotFoundError(message="Not found.")
    assert await receiver_of(library).complete(LOCKS[:2]) == dict.fromkeys(LOCKS[:2], "Not found.")


async def test_the_request_after_an_error_connects_again(library: Library) -> None:
    receiver = receiver_of(library)
    library.error = exceptions.ServiceBusConnectionError(message="away")
    with pytest.raises(StreamError, match="'orders' cannot be read: the service does not answer: away"):
        await receiver.complete(LOCKS)
    assert [one.closed for one in library.made] == [1]
    library.error = None
    assert await receiver.complete(LOCKS) == {}
    assert [one.closed for one in library.made] == [1, 0]
    await receiver.aclose()
    assert [one.closed for one in library.made] == [1, 1]


async def test_an_error_that_stays_is_told_from_one_that_may_pass(library: Library) -> None:
    library.error = exceptions.MessagingEntityNotFoundError()
    with pytest.raises(UpstreamError, match="'orders' cannot be read"):
        await receiver_of(library).open()


async def test_a_receiver_of_a_session_does_not_connect_again(library: Library) -> None:
    """It would get another session."""
    receiver = SessionReceiver(library.make, WHAT)
    library.error = exceptions.ServiceBusConnectionError()
    with pytest.raises(StreamError, match="does not answer"):
        await receiver.peek(1, 1)
    library.error = None
    with pytest.raises(StreamError, match="the connection of the session was lost"):
        await receiver.peek(1, 1)
    assert len(library.made) == 1


async def test_a_lost_session_ends_its_receiver(library: Library) -> None:
    receiver = SessionReceiver(library.make, WHAT)
    library.error = exceptions.SessionLockLostError()
    with pytest.raises(exceptions.SessionLockLostError):
        await receiver.receive(0.01)
    assert library.made[0].closed == 1


async def test_a_receiver_waits_until_it_has_a_session(library: Library) -> None:
    receiver = SessionReceiver(library.make, WHAT)
    opening = asyncio.create_task(receiver.open())
    await asyncio.sleep(3 * handler.TURN_SECONDS)
    assert not opening.done()
    library.made[0].session = SimpleNamespace(session_id="")  # an empty text is the id of a session too
    await opening
    assert receiver.session == ""


async def test_requests_are_sent_one_after_the_other(library: Library) -> None:
    receiver = receiver_of(library)
    library.messages = ["a"]
    requests = [receiver.receive(0.01), receiver.complete(LOCKS[:1]), receiver.renew(LOCKS[1:2]), receiver.peek(7, 1)]
    await asyncio.gather(*requests)
    assert [name for name, _ in library.requests] == ["completed", "renewed", "peek 1 from 7"]
    assert library.most_running == 1


async def cancelled(library: Library, request: Awaitable[Any]) -> None:
    """Cancel a request while the service does not answer."""
    library.answered.clear()
    task = asyncio.ensure_future(request)
    while not library.running:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert library.running == 1


async def test_the_request_of_a_cancelled_caller_goes_on_to_its_end(library: Library) -> None:
    receiver = receiver_of(library)
    await cancelled(library, receiver.complete(LOCKS))
    library.answered.set()
    assert await receiver.renew(LOCKS) == {}
    assert [one.closed for one in library.made] == [0]
    assert library.requests == [("completed", LOCKS), ("renewed", LOCKS)]


async def test_a_close_ends_the_request_of_a_cancelled_caller(library: Library) -> None:
    receiver = receiver_of(library)
    await cancelled(library, receiver.complete(LOCKS))
    async with asyncio.timeout(5):
        await receiver.aclose()
    assert library.running == 0
    assert [(one.aborted.is_set(), one.closed) for one in library.made] == [(True, 1)]


async def test_a_receiver_that_was_not_opened_is_closed_without_a_connection(library: Library) -> None:
    await receiver_of(library).aclose()
    assert library.made == []


async def test_a_close_does_not_wait_for_a_connection_that_does_not_end(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "CLOSE_SECONDS", 0.05)
    receiver = receiver_of(library)
    await receiver.complete(LOCKS)
    monkeypatch.setattr(library.made[0], "close", asyncio.Event().wait)
    async with asyncio.timeout(5):
        await receiver.aclose()


async def test_what_arrives_while_a_receiver_opens_is_received_first(library: Library) -> None:
    receiver = receiver_of(library)
    library.messages = ["a", "b"]
    await receiver.open()
    library.messages = ["c"]
    assert [await receiver.receive(0.01) for _ in range(3)] == [["a", "b"], ["c"], []]


async def test_a_silent_connection_is_tried(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = receiver_of(library)
    assert await receiver.receive(0.01) == []
    assert library.requests == []
    monkeypatch.setattr(module, "KEEPALIVE_SECONDS", 0.0)
    assert await receiver.receive(0.01) == []
    assert library.requests == [("peek 1 from 1", [])]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (None, None),
        (exceptions.MessagingEntityNotFoundError(), None),
        (exceptions.ServiceBusAuthorizationError(), UpstreamError),
        (exceptions.ServiceBusConnectionError(), StreamError),
    ],
)
async def test_a_service_is_reached_also_if_there_is_no_such_queue(library: Library, error: Exception | None, kind: Any) -> None:
    library.error = error
    if kind is None:
        await receiver_of(library).reach()
    else:
        with pytest.raises(kind):
            await receiver_of(library).reach()


async def test_a_link_that_the_service_has_closed_because_it_was_idle_is_opened_again(library: Library) -> None:
    receiver = receiver_of(library)
    assert await receiver.receive(0.01) == []
    idle = exceptions.ServiceBusConnectionError(condition=b"amqp:link:detach-forced")
    library.errors = [idle]
    library.messages = ["a"]
    assert await receiver.receive(0.01) == ["a"]
    assert [one.closed for one in library.made] == [1, 0]
    library.errors = [idle, idle]
    with pytest.raises(StreamError):
        await receiver.receive(0.01)


@given(st.sets(st.integers(0, 60)))
def test_runs_have_each_delivery_once_in_order_and_no_gap_and_are_as_few_as_possible(numbers: set[int]) -> None:
    runs = runs_of([Delivery(number, UUID(int=0)) for number in sorted(numbers)])
    assert [delivery.number for run in runs for delivery in run] == sorted(numbers)
    assert all([one.number for one in run] == [*range(run[0].number, run[-1].number + 1)] for run in runs)
    assert all(before[-1].number + 1 < after[0].number for before, after in pairwise(runs))
