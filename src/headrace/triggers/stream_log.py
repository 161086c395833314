"""The event log that a shared stream is recorded in, and the mark that an upstream keeps of it.

An upstream that keeps its own progress keeps a mark beside it: the log, the stream, and how many receipts of the stream the log had when
the upstream was advanced last. Receipts are stored before the upstream is advanced. So a mark of another log, or one with more receipts
than the log has, means that the database is not the one that the upstream was advanced for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from shlex import quote
from typing import Any, NamedTuple

from headrace.errors import UpstreamError


class LogMark(NamedTuple):
    """An event log, a stream, and how many receipts of the stream the log has."""

    log: str
    stream: str
    receipts: int


class LaneMove(NamedTuple):
    """The position that is read next before and after a seek. `previous` is None if the lane was not read."""

    previous: int | None
    position: int


class StreamSeek(NamedTuple):
    """A seek that an operator planned: the position to read next in each of these lanes.

    The producer that opens the stream carries it out before it reads these lanes. It awaits `begin` with all lanes that it can move, moves
    the lanes that `begin` returns to the positions that it returns, and awaits `finish` with their names. If it is killed in between, the
    next producer does the same. `begin` returns the same positions then.
    """

    lanes: Mapping[str, int]
    begin: Callable[[Mapping[str, LaneMove]], Coroutine[Any, Any, Mapping[str, int]]]
    finish: Callable[[Collection[str]], Coroutine[Any, Any, None]]


class LogState(NamedTuple):
    """The receipts of a stream in an event log. `adopted` is the mark of another log that an operator accepted.

    `seek` is planned and not done.
    """

    log: str
    receipts: int
    adopted: LogMark | None = None
    seek: StreamSeek | None = None


class StreamLog:
    """The event log as the reader of one stream knows it. `look_up` returns the state of a stream in the log."""

    def __init__(self, stream: str, state: LogState, look_up: Callable[[str], Awaitable[LogState]]) -> None:
        self._stream = stream
        self._state = state
        self._look_up = look_up
        self._receipts = state.receipts

    @property
    def mark(self) -> LogMark:
        """The mark that an upstream may keep with what it is advanced past now."""
        return LogMark(self._state.log, self._stream, self._receipts)

    @property
    def seek(self) -> StreamSeek | None:
        """The seek that was planned when the stream was opened, or None."""
        return self._state.seek

    def stored(self) -> None:
        """Count a receipt that the log has stored."""
        self._receipts += 1

    async def check(self, mark: LogMark | None) -> None:
        """Compare the mark that the upstream keeps with the log.

        Raises:
            UpstreamError: The upstream was advanced for another log, or past what this log knows.
        """
        if mark is None or mark == self._state.adopted:
            return
        # The path of an upstream may have changed, and so its stream's name.
        state = self._state if mark.stream == self._stream else await self._look_up(mark.stream)
        if mark != state.adopted:
            compare(mark, state)


def compare(mark: LogMark, state: LogState) -> None:
    """Compare the mark that an upstream keeps with the log of the stream that it names.

    Raises:
        UpstreamError: As for `StreamLog.check`.
    """
    if mark.log == state.log and mark.receipts <= state.receipts:
        return
    adopt = f"headrace streams adopt {quote(mark.stream)} --log {mark.log} --receipts {mark.receipts}"
    if mark.log != state.log:
        raise UpstreamError(
            f"{mark.stream} was read for the event log {mark.log}, and the api now has the event log {state.log}: it has another database.",
            hint="Bring back the database that the upstream was read for. To go on with this one, without what the other has already: "
            f"{adopt}",
        )
    raise UpstreamError(
        f"{mark.stream} was read on after the database was saved: it was advanced with receipt {mark.receipts} of the event log, "
        f"which has {state.receipts}. The database was restored from a backup.",
        hint=f"Restore a newer backup. To go on without the raw events that were read after this one, which the audit then names: {adopt}",
    )
