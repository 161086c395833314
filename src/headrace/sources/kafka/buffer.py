"""The messages that a reader has delivered and its stream has not taken yet. Pure. The reader's thread adds, the event loop takes."""

from __future__ import annotations

from typing import Final

MAX_BUFFERED_MESSAGES: Final = 2_000
MAX_BUFFERED_BYTES: Final = 4 * 1024 * 1024
"""Delivered messages that the stream has not taken yet, plus one fetch. They are outside of the memory budget."""


class Buffer:
    """Counts messages and bytes. Each count is written by one thread only."""

    def __init__(self) -> None:
        self._added, self._taken = [0, 0], [0, 0]

    @property
    def messages(self) -> int:
        """The number of messages."""
        return self._added[0] - self._taken[0]

    @property
    def has_room(self) -> bool:
        """Whether more messages may be delivered."""
        return self.messages < MAX_BUFFERED_MESSAGES and self._added[1] - self._taken[1] < MAX_BUFFERED_BYTES

    def add(self, messages: int, size: int) -> None:
        """Record that messages of this total size are delivered."""
        self._added[0] += messages
        self._added[1] += size

    def take(self, messages: int, size: int) -> None:
        """Record that the stream has taken messages of this total size."""
        self._taken[0] += messages
        self._taken[1] += size
