"""Long polls of one queue: one while there is little to read, several while each answer is full.

A long poll is never cancelled while it can still receive: the service would deliver a message to the closed connection, and
to no other reader before its lease ends. `stop` lets the running polls end, which takes up to their wait.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from headrace.errors import StreamError
from headrace.sources.leases.acknowledgements import Acknowledgements
from headrace.sources.leases.leases import Leases, Part
from headrace.sources.leases.service import Answer, LeaseService, LeaseSettings, Received
from headrace.triggers.raw_event import Message

MAX_POLLS: Final = 8
MAX_BUFFERED_RECORDS: Final = 100
MAX_BUFFERED_BYTES: Final = 1024 * 1024
"""What the stream has not taken yet, plus one answer for each poll. It is outside of the memory budget."""
MAX_RETRY_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 2.0
PROBLEM: Final = "queue"

log = structlog.get_logger(__name__)

Item = tuple[Message, Part]
NOTHING: Final = Answer((), is_full=False)


class Receiver:
    """Polls the queue from `start` to `stop`. `problems` names what cannot be read now."""

    def __init__(
        self, service: LeaseService, leases: Leases, acknowledgements: Acknowledgements, settings: LeaseSettings, problems: dict[str, str]
    ) -> None:
        self._service = service
        self._leases = leases
        self._acknowledgements = acknowledgements
        self._settings = settings
        self._problems = problems
        self._buffer: deque[Item] = deque()
        self._size = 0
        self._failure: Exception | None = None
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._stopped = asyncio.Event()
        self._polls: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to poll."""
        self._room.set()
        self._add_poll(is_first=True)

    async def next(self) -> Item:
        """Return the next raw event. Raises the error that ended the polls."""
        while not self._buffer:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        item = self._buffer.popleft()
        self._size -= len(item[0].data)
        if len(self._buffer) < MAX_BUFFERED_RECORDS and self._size < MAX_BUFFERED_BYTES:
            self._room.set()
        return item

    def stop(self) -> None:
        """Begin no more polls."""
        self._stopped.set()
        self._room.set()

    def fail(self, error: Exception) -> None:
        """End the stream with this error, after what has arrived already."""
        self._failure = self._failure or error
        self.stop()
        self._arrived.set()

    async def aclose(self) -> None:
        """Wait until the running polls have ended."""
        self.stop()
        if self._polls:
            _, late = await asyncio.wait(self._polls, timeout=self._settings.poll_seconds + CLOSE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _add_poll(self, *, is_first: bool) -> None:
        task = asyncio.create_task(self._poll(is_first=is_first), name="headrace poll of a queue")
        self._polls.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._polls.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.fail(error)

    async def _poll(self, *, is_first: bool) -> None:
        """Poll until `stop`; a poll that is not the first ends with the first answer that is not full."""
        while True:
            await self._room.wait()
            if self._stopped.is_set():
                return
            messages, is_full = await self._receive(is_first=is_first)
            if messages:
                self._take(messages)
            if is_full and len(self._polls) < MAX_POLLS and not self._stopped.is_set():
                self._add_poll(is_first=False)
            if not is_full and not is_first:
                return

    async def _receive(self, *, is_first: bool) -> Answer:
        """Return the answer of one poll. While the service does not answer, name the error; the first poll repeats, with growing pauses."""
        settings, attempt, request = self._settings, 0, self._service.poll()
        while True:
            try:
                answer = await request()
            except StreamError as error:
                if PROBLEM not in self._problems:
                    log.warning("queue not read", queue=settings.queue, error=str(error))
                self._problems[PROBLEM] = str(error)
                if not is_first:
                    return NOTHING
            else:
                if self._problems.pop(PROBLEM, None) is not None:
                    log.info("queue read again", queue=settings.queue)
                return answer
            attempt += 1
            pause = min(MAX_RETRY_SECONDS, 0.1 * 2 ** min(attempt, 10)) * random.uniform(0.5, 1.0)  # noqa: S311
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopped.wait()
            if self._stopped.is_set():
                return NOTHING

    def _take(self, messages: Sequence[Received]) -> None:
        now = time.monotonic()
        finished = []
        for message in messages:
            lease = self._leases.receive(message.id, message.receipt, message.group, message.lane, len(message.events), now)
            if lease is None:
                continue
            if not lease.open_parts:
                finished.append(lease)
                continue
            for number, event in enumerate(message.events):
                self._buffer.append((event, Part(lease, number)))
                self._size += len(event.data)
        if finished:
            self._acknowledgements.acknowledge_soon(finished)
        if len(self._buffer) >= MAX_BUFFERED_RECORDS or self._size >= MAX_BUFFERED_BYTES:
            self._room.clear()
        if self._stopped.is_set():
            self._room.set()
        self._arrived.set()
