"""A thread waits for the answer of the API, until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest

from headrace.errors import Fenced, StreamError
from headrace.sources.blocking_seek import BlockingSeek
from headrace.triggers.stream_log import LaneMove, StreamSeek

MOVES = {"a": LaneMove(3, 7)}


class Api:
    """Answers as told: after `answered` is set, with the moves or with an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.answered = asyncio.Event()
        self.finished: list[str] = []
        self.cancelled = asyncio.Event()
        self._error = error

    def seek(self) -> BlockingSeek:
        return BlockingSeek(StreamSeek({"a": 7}, self._begin, self._finish))

    async def _begin(self, moves: Mapping[str, LaneMove]) -> Mapping[str, int]:
        try:
            await self.answered.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if self._error is not None:
            raise self._error
        return {lane: move.position for lane, move in moves.items()}

    async def _finish(self, lanes: Collection[str]) -> None:
        self.finished += lanes


async def test_a_call_returns_the_answer() -> None:
    api = Api()
    api.answered.set()
    seek = api.seek()
    assert await asyncio.to_thread(seek.begin, MOVES) == {"a": 7}
    await asyncio.to_thread(seek.finish, ["a"])
    assert (dict(seek.lanes), api.finished) == ({"a": 7}, ["a"])


@pytest.mark.parametrize("error", [Fenced("Another job holds it."), TimeoutError("a timeout of the call itself")])
async def test_an_error_of_the_call_is_raised(error: Exception) -> None:
    api = Api(error)
    api.answered.set()
    with pytest.raises(type(error), match=str(error)):
        await asyncio.to_thread(api.seek().begin, MOVES)


async def test_a_stop_ends_the_wait_and_the_call() -> None:
    api = Api()
    seek = api.seek()
    waiting = asyncio.create_task(asyncio.to_thread(seek.begin, MOVES))
    seek.stop()
    with pytest.raises(StreamError, match="the API does not answer"):
        await waiting
    async with asyncio.timeout(10):
        await api.cancelled.wait()
