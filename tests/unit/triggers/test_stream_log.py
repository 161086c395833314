"""The mark of the event log that an upstream stores, and the marks that a log accepts."""

from __future__ import annotations

import pytest

from headrace.errors import UpstreamError
from headrace.triggers.stream_log import LogMark, LogState, StreamLog

OURS, OTHER = "0" * 15 + "1", "0" * 15 + "2"


def stream_log(books: LogState, others: dict[str, LogState] | None = None) -> StreamLog:
    async def look_up(stream: str) -> LogState:
        return (others or {}).get(stream, LogState(OURS, 0))

    return StreamLog("here", books, look_up)


@pytest.mark.parametrize("kept", [None, LogMark(OURS, "here", 0), LogMark(OURS, "here", 5)])
async def test_a_mark_of_the_same_log_is_accepted(kept: LogMark | None) -> None:
    await stream_log(LogState(OURS, 5)).check(kept)


async def test_receipts_are_counted() -> None:
    log = stream_log(LogState(OURS, 5))
    log.stored()
    assert log.mark == LogMark(OURS, "here", 6)
    await stream_log(LogState(OURS, 6)).check(log.mark)
    with pytest.raises(UpstreamError, match="receipt 6 of the event log, which has 5"):
        await stream_log(LogState(OURS, 5)).check(log.mark)


async def test_a_mark_of_another_log_is_rejected_with_the_command_that_adopts_it() -> None:
    with pytest.raises(UpstreamError, match="another database") as refused:
        await stream_log(LogState(OURS, 50)).check(LogMark(OTHER, "here", 5))
    assert refused.value.hint is not None
    assert f"headrace streams adopt here --log {OTHER} --receipts 5" in refused.value.hint


async def test_an_adopted_mark_is_accepted_and_later_marks_of_its_log_are_rejected() -> None:
    books = LogState(OURS, 0, LogMark(OTHER, "here", 5))
    await stream_log(books).check(LogMark(OTHER, "here", 5))
    with pytest.raises(UpstreamError):
        await stream_log(books).check(LogMark(OTHER, "here", 6))


async def test_a_renamed_stream_is_checked_under_its_previous_name() -> None:
    kept = LogMark(OURS, "there", 5)
    await stream_log(LogState(OURS, 0), {"there": LogState(OURS, 5)}).check(kept)
    with pytest.raises(UpstreamError) as refused:
        await stream_log(LogState(OURS, 9), {"there": LogState(OURS, 4)}).check(kept)
    assert "adopt there" in str(refused.value.hint)
    await stream_log(LogState(OURS, 0), {"there": LogState(OURS, 0, LogMark(OTHER, "there", 5))}).check(LogMark(OTHER, "there", 5))
