"""Read logs: a page from an offset, or the last lines. Pages contain whole lines only."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from headrace.logs.names import LogName, parse_trigger_log, trigger_folder
from headrace.logs.segments import Segment, segments

PAGE_BYTES: Final = 256 * 1024
"""Size of a page; lines are shorter."""


class Page(NamedTuple):
    """Whole lines of a log, from offset `start` to before `end`. `start` is later than requested if older lines were deleted."""

    start: int
    end: int
    data: bytes


def read_page(root: Path, name: LogName, after: int = 0) -> Page | None:
    """Return the log from offset `after`, up to `PAGE_BYTES`, or None if there is no such log here."""
    files = segments(root, name)
    if not files:
        return None
    for segment in files:
        if after < segment.end:
            page = _read(segment, max(after, segment.start))
            if page.data:
                return page
    end = max(after, files[0].start)
    return Page(end, end, b"")


def offset_of_last(root: Path, name: LogName, lines: int) -> int:
    """Return the offset of the last `lines` lines."""
    files = segments(root, name)
    remaining = lines
    for segment in reversed(files):
        data = _content(segment, segment.start)
        offset = data.rfind(b"\n") + 1
        while offset and remaining:
            offset = data.rfind(b"\n", 0, offset - 1) + 1
            remaining -= 1
        if not remaining:
            return segment.start + offset
    return files[0].start if files else 0


def jobs_with_logs(root: Path, trigger_id: int) -> list[int]:
    """Return the jobs that have a log of the trigger here, oldest first."""
    try:
        names = [parse_trigger_log(path.name) for path in (root / trigger_folder(trigger_id)).iterdir()]
    except FileNotFoundError:
        return []
    return sorted({name.job_id for name in names if name is not None and name.job_id is not None})


def _read(segment: Segment, start: int) -> Page:
    data = _content(segment, start, PAGE_BYTES)
    whole = data[: data.rfind(b"\n") + 1]
    return Page(start, start + len(whole), whole)


def _content(segment: Segment, start: int, max_bytes: int = -1) -> bytes:
    try:
        with segment.path.open("rb") as file:
            file.seek(start - segment.start)
            return file.read(max_bytes)
    except FileNotFoundError:  # it was the oldest file and has just been deleted
        return b""
