"""The sessions of a queue or subscription as a lease service: each session that is held is a lane, and its lock is that of its messages.

A receiver waits for the next session that has messages and that no other reader holds. A session is given back when it was empty for
IDLE_SECONDS and all its messages are answered. After a failed message, no more messages of its session are received: the service would
deliver the later ones first. The lock is then not renewed, and ends; the messages come again in their order.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

import structlog

from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.decoding import Decoder
from headrace.sources.leases.leases import Lease
from headrace.sources.leases.service import Answer, Failures, Received
from headrace.sources.service_bus.message import event_of, id_of, sequence_number_of
from headrace.sources.service_bus.queue import MAX_TOKENS, POLL_SECONDS
from headrace.sources.service_bus.receiver import MAX_MESSAGES
from headrace.sources.service_bus.service_errors import described, is_lock_lost, is_session_lost
from headrace.sources.service_bus.session_receiver import SessionReceiver

IDLE_SECONDS: Final = 1.0
"""How long an empty session is held."""
MAX_ACCEPTING: Final = 4
"""Requests for a session at once."""
TURN_SECONDS: Final = 0.2
"""How long a reader waits for messages before it looks whether its session has ended."""
MAX_RETRY_SECONDS: Final = 5.0
RETURN_LOCKS: Final = 2
"""Lock durations after its loss in which a session may come again to this reader. Later, another one has it."""
LOST: Final = "the lock of the session has ended"

log = structlog.get_logger(__name__)


class _Session:
    """A session that this process holds. `open` has the locks of its messages that are not completed."""

    def __init__(self, id: str, receiver: SessionReceiver) -> None:
        self.id = id
        self.receiver = receiver
        self.open: set[str] = set()
        self.is_lost = False
        self.ends = float("inf")
        """When the reader gives the session back, by the monotonic clock: after a failed message, when its lock has ended."""

    @property
    def is_stopped(self) -> bool:
        """Whether a message of the session has failed, so that no more are received."""
        return self.ends < float("inf")


_Request: TypeAlias = Callable[[_Session, Sequence[Lease]], Awaitable[Failures]]


class SessionService:
    """The requests about the sessions of one queue or subscription, up to `limit` at once. A receipt is the token of a lock.

    `make` creates a receiver of the next session, and `what` names what failed in errors. A lock lasts for `lock_seconds` or more.
    """

    max_messages: Final = MAX_TOKENS

    def __init__(self, client: Any, make: Callable[[], Any], what: str, decode: Decoder, *, lock_seconds: int, limit: int) -> None:
        self._client = client
        self._make = make
        self._what = what
        self._decode = decode
        self._lock_seconds = lock_seconds
        self._slots = asyncio.Semaphore(limit)
        self._arrived: asyncio.Queue[Received] = asyncio.Queue(MAX_MESSAGES)
        self._sessions: dict[str, _Session] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._waiting: set[SessionReceiver] = set()
        self._failure: HeadraceError | None = None
        self._lost: dict[str, float] = {}
        """When sessions were lost, by the monotonic clock."""
        self._failed = asyncio.Event()
        self._is_closed = False
        self._accepting: set[asyncio.Task[None]] = set()
        self._add_accepting(is_first=True)

    def poll(self) -> Callable[[], Awaitable[Answer]]:
        """Return the request of one poll."""
        return self._poll

    def stop(self, groups: Collection[str | None]) -> None:
        """Receive no more messages of these sessions, and give them back when their locks have ended."""
        for session in [self._sessions[group] for group in groups if group in self._sessions]:
            session.ends = min(session.ends, time.monotonic() + self._lock_seconds)

    async def acknowledge(self, leases: Sequence[Lease]) -> Failures:
        """Complete messages."""
        return await self._for_each_session(leases, self._complete)

    async def set_lease(self, leases: Sequence[Lease], seconds: int) -> Failures:
        """Return which messages are lost with their sessions. The locks of sessions are renewed until `aclose` gives them back."""
        return await self._for_each_session(leases, _nothing) if seconds else {}

    async def aclose(self) -> None:
        """Give all sessions back, and close the connections. Messages that are not completed come again in their order."""
        self._is_closed = True
        for task in self._accepting:
            task.cancel()
        tasks = {*self._accepting, *self._readers}
        while tasks:
            while not self._arrived.empty():
                self._arrived.get_nowait()  # readers that wait for room go on
            _, tasks = await asyncio.wait(tasks, timeout=TURN_SECONDS)
        await asyncio.gather(*(receiver.aclose() for receiver in self._waiting))
        await self._client.close()

    async def _poll(self) -> Answer:
        arrived = await self._first()
        if arrived is None and self._failure is not None:
            raise self._failure
        messages = [] if arrived is None else [arrived]
        while not self._arrived.empty():
            messages.append(self._arrived.get_nowait())
        return Answer([one for one in messages if self._is_held(one)], is_full=False)

    async def _first(self) -> Received | None:
        """Return the next message, or None after POLL_SECONDS or a failure."""
        getting, failed = asyncio.ensure_future(self._arrived.get()), asyncio.ensure_future(self._failed.wait())
        try:
            await asyncio.wait([getting, failed], timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            return getting.result() if getting.done() else None
        finally:
            getting.cancel()
            failed.cancel()

    def _is_held(self, message: Received) -> bool:
        """Return whether a message that was not taken yet is still held. Otherwise it comes again, after an earlier one that failed."""
        session = self._sessions.get(message.lane)
        return session is not None and not session.is_stopped and message.receipt in session.open

    def _add_accepting(self, *, is_first: bool) -> None:
        task = asyncio.create_task(self._accept(is_first=is_first), name="headrace next session of Service Bus")
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    async def _accept(self, *, is_first: bool) -> None:
        """Wait for sessions, one after the other, and read each with a task of its own.

        While there are sessions, several tasks request them. Without one, all but the first end.
        """
        attempt = 0
        while True:
            await self._slots.acquire()
            receiver = SessionReceiver(self._make, self._what)
            self._waiting.add(receiver)
            try:
                await receiver.open()
            except Exception as error:
                await receiver.aclose()
                self._waiting.discard(receiver)
                self._slots.release()
                if _is_no_session(error) or is_session_lost(error):
                    attempt = 0
                    self._succeed()
                else:
                    attempt += 1
                    self._fail(error)
                if not is_first or isinstance(self._failure, UpstreamError):
                    return
                if attempt:
                    await asyncio.sleep(min(MAX_RETRY_SECONDS, 0.1 * 2 ** min(attempt, 10)) * random.uniform(0.5, 1.0))  # noqa: S311
            else:
                attempt = 0
                self._succeed()
                self._begin(receiver)
                if len(self._accepting) < MAX_ACCEPTING:
                    self._add_accepting(is_first=False)

    def _begin(self, receiver: SessionReceiver) -> None:
        session = _Session(receiver.session or "", receiver)
        self._waiting.discard(receiver)
        self._sessions[session.id] = session
        task = asyncio.create_task(self._read(session), name="headrace session of Service Bus")
        self._readers.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._readers.discard(task)
        self._slots.release()
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(error)

    async def _read(self, session: _Session) -> None:
        """Receive the messages of a session until it is empty, lost, or given back."""
        renewing = asyncio.create_task(self._renew(session), name="headrace session lock of Service Bus")
        received = time.monotonic()
        try:
            while not (self._is_closed or session.is_lost):
                now = time.monotonic()
                if session.ends <= now or (not session.open and now - received >= IDLE_SECONDS):
                    return
                if session.is_stopped:
                    await asyncio.sleep(TURN_SECONDS)
                elif await self._receive(session):
                    received = time.monotonic()
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            if self._sessions.get(session.id) is session:
                del self._sessions[session.id]
            if session.is_lost or session.open:
                self._lost[session.id] = time.monotonic()
            await session.receiver.aclose()

    async def _renew(self, session: _Session) -> None:
        """Renew the lock of a session as long as it is held, also while the stream takes no messages of it."""
        while not session.is_stopped:
            await asyncio.sleep(self._lock_seconds / 2)
            try:
                await session.receiver.renew_session()
            except Exception as error:
                session.is_lost = True
                log.warning("session lost", session=session.id, reason=str(error))
                return

    async def _receive(self, session: _Session) -> bool:
        """Receive messages of a session, and return whether there were some."""
        try:
            messages = await session.receiver.receive(TURN_SECONDS)
        except Exception as error:
            session.is_lost = True
            if not is_session_lost(error):
                raise
            log.warning("session lost", session=session.id, reason=str(error))
            return False
        for message in messages:
            token = str(message.lock_token)
            session.open.add(token)
            event = event_of(message, session.id, self._decode)
            await self._arrived.put(Received(id_of(message), token, session.id, session.id, [event]))
        return bool(messages)

    async def _for_each_session(self, leases: Sequence[Lease], request: _Request) -> Failures:
        """Return the failures of a request for each session, all at once. The messages of sessions that have ended failed."""
        held: dict[str, list[Lease]] = {}
        others: dict[str, list[Lease]] = {}
        failures: dict[Lease, HeadraceError | str] = {}
        earliest = time.monotonic() - RETURN_LOCKS * self._lock_seconds
        self._lost = {id: lost for id, lost in self._lost.items() if lost > earliest}
        for lease in leases:
            session = self._sessions.get(lease.lane)
            if session is not None and not session.is_lost:
                (held if lease.receipt in session.open else others).setdefault(lease.lane, []).append(lease)
            else:
                failures[lease] = StreamError(f"{self._what}: {LOST}.") if session is not None or lease.lane in self._lost else LOST
        requests = [(id, some, request) for id, some in held.items()] + [(id, some, self._look_for) for id, some in others.items()]
        for some in await asyncio.gather(*(self._checked(self._sessions[id], some, one) for id, some, one in requests)):
            failures |= some
        return failures

    async def _look_for(self, session: _Session, leases: Sequence[Lease]) -> Failures:
        """Return the failures of messages that came with an earlier lock of a session.

        A message that the service still has comes again. Any other was completed, and the answer was lost.
        """
        failures: dict[Lease, HeadraceError | str] = {}
        for lease in leases:
            number = int(lease.id.partition("-")[0])
            seen = await session.receiver.peek(number, 1)
            is_there = any(sequence_number_of(message) == number for message in seen)
            failures[lease] = StreamError(f"{self._what}: {LOST}.") if is_there else LOST
        return failures

    async def _checked(self, session: _Session, leases: Sequence[Lease], request: _Request) -> Failures:
        try:
            return await request(session, leases)
        except HeadraceError as error:
            session.is_lost = True  # its connection is
            return dict.fromkeys(leases, error)
        except Exception as error:
            if not (is_session_lost(error) or is_lock_lost(error)):
                raise
            session.is_lost = True
            return dict.fromkeys(leases, described(self._what, error))

    async def _complete(self, session: _Session, leases: Sequence[Lease]) -> Failures:
        lost = await session.receiver.complete([UUID(lease.receipt) for lease in leases])
        session.open.difference_update(lease.receipt for lease in leases)
        return {lease: lost[token] for lease in leases if (token := UUID(lease.receipt)) in lost}

    def _succeed(self) -> None:
        self._failure = None
        self._failed.clear()

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, HeadraceError):
            log.error("sessions not read", reason=repr(error), exc_info=error)
        self._failure = described(self._what, error)
        self._failed.set()


async def _nothing(session: _Session, leases: Sequence[Lease]) -> Failures:
    """Send nothing: the session is held."""
    del session, leases
    return {}


def _is_no_session(error: Exception) -> bool:
    """Return whether the service had no session to give within the time of the request."""
    return type(error.__cause__).__name__ == "OperationTimeoutError"
