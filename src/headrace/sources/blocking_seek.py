"""A planned seek for a thread: its calls block until the event loop has the answer of the API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, Final, TypeVar

from headrace.errors import StreamError
from headrace.triggers.stream_log import LaneMove, StreamSeek

SEEK_SECONDS: Final = 30.0
WAIT_SECONDS: Final = 0.1

R = TypeVar("R")


class BlockingSeek:
    """Calls a `StreamSeek` from a thread other than that of the running event loop, in which it is created."""

    def __init__(self, seek: StreamSeek) -> None:
        self.lanes = seek.lanes
        self._seek = seek
        self._loop = asyncio.get_running_loop()
        self._is_stopped = False

    def stop(self) -> None:
        """End each wait with an error. May be called from any thread."""
        self._is_stopped = True

    def begin(self, moves: Mapping[str, LaneMove]) -> Mapping[str, int]:
        """Record the moves. Return the lanes to move and their positions.

        Raises:
            StreamError: The API does not answer within SEEK_SECONDS, or `stop` was called.
        """
        return self._wait(self._seek.begin(moves))

    def finish(self, lanes: Collection[str]) -> None:
        """Record that the lanes are moved. Raises `StreamError` as `begin` does."""
        self._wait(self._seek.finish(lanes))

    def _wait(self, call: Coroutine[Any, Any, R]) -> R:
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        until = time.monotonic() + SEEK_SECONDS
        while not (future.done() or self._is_stopped or time.monotonic() > until):
            try:
                return future.result(WAIT_SECONDS)
            except TimeoutError:
                continue
        if future.done():
            return future.result()
        future.cancel()
        raise StreamError("The seek of the stream cannot be recorded: the API does not answer.", hint="It is repeated at the next opening.")
