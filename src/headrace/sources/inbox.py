"""The messages of all lanes that were read and that the stream has not taken, with a limit that the readers of the lanes wait for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic, TypeVar

from headrace.errors import HeadraceError
from headrace.sources.cancellation import check_cancelled
from headrace.triggers.raw_event import Message

T = TypeVar("T")

MAX_BYTES: Final = 8 * 1024 * 1024
MAX_MESSAGES: Final = 20_000
MESSAGES_PER_TURN: Final = 250
"""After this number of messages, other tasks run before the next one is decoded."""


class Inbox(Generic[T]):
    """Messages with their broker payloads, in the order in which they were read. `failure` is the error that ends them."""

    def __init__(self) -> None:
        self.failure: HeadraceError | None = None
        self._messages: deque[tuple[Message, T]] = deque()
        self._bytes = 0
        self._put = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    async def put(self, item: tuple[Message, T]) -> None:
        """Add a message. Return once there is room for another one."""
        self._messages.append(item)
        self._bytes += len(item[0].data)
        self._arrived.set()
        self._put += 1
        if self._put % MESSAGES_PER_TURN == 0:
            await asyncio.sleep(0)
        await self.wait_for_room()

    async def next(self) -> tuple[Message, T]:
        """Return the next message. Raises `failure` once all messages before it are taken."""
        while not self._messages:
            if self.failure is not None:
                raise self.failure
            self._arrived.clear()
            await self._arrived.wait()
        item = self._messages.popleft()
        self._bytes -= len(item[0].data)
        if self._has_room:
            self._room.set()
        return item

    def end(self, failure: HeadraceError) -> None:
        """End the messages with an error."""
        self.failure = failure
        self._arrived.set()

    async def wait_for_room(self) -> None:
        """Wait until the stream has taken enough of the messages."""
        while not self._has_room:
            check_cancelled()
            self._room.clear()
            await self._room.wait()

    @property
    def _has_room(self) -> bool:
        return len(self._messages) < MAX_MESSAGES and self._bytes < MAX_BYTES
