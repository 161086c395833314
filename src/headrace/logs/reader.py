"""Reading logs: a page from an offset on, or the last lines. Only whole lines are given."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from headrace.logs.names import LogName, parse_trigger_log, trigger_folder
from headrace.logs.segments import Segment, segments

MOST: Final = 256 * 1024
"""Bytes of a page; a line is shorter than that."""


class Page(NamedTuple):
    """Whole lines of a log from the offset `start` (later than was asked for where the log no longer has those) to before `end`."""

    start: int
    end: int
    data: bytes


def read_page(root: Path, name: LogName, after: int = 0) -> Page | None:
    """Return what is logged from the offset `after` on, at most `MOST` bytes, or None if there is no such log here."""
    there = segments(root, name)
    if not there:
        return None
    for segment in there:
        if after < segment.end:
            page = _read(segment, max(after, segment.start))
            if page.data:
                return page
    end = max(after, there[0].start)
    return Page(end, end, b"")


def offset_of_last(root: Path, name: LogName, lines: int) -> int:
    """Return the offset at which the last so many lines begin."""
    there = segments(root, name)
    wanted = lines
    for segment in reversed(there):
        data = _content(segment, segment.start)
        place = data.rfind(b"\n") + 1
        while place and wanted:
            place = data.rfind(b"\n", 0, place - 1) + 1
            wanted -= 1
        if not wanted:
            return segment.start + place
    return there[0].start if there else 0


def jobs_with_logs(root: Path, trigger_id: int) -> list[int]:
    """Return the jobs that have a log of the trigger here, the oldest first."""
    try:
        names = [parse_trigger_log(path.name) for path in (root / trigger_folder(trigger_id)).iterdir()]
    except FileNotFoundError:
        return []
    return sorted({name.job_id for name in names if name is not None and name.job_id is not None})


def _read(segment: Segment, start: int) -> Page:
    data = _content(segment, start, MOST)
    whole = data[: data.rfind(b"\n") + 1]
    return Page(start, start + len(whole), whole)


def _content(segment: Segment, start: int, most: int = -1) -> bytes:
    try:
        with segment.path.open("rb") as file:
            file.seek(start - segment.start)
            return file.read(most)
    except FileNotFoundError:  # it was the oldest, and a newer file took its place a moment ago
        return b""
