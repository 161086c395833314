"""The files that one log is made of.

A log is a sequence of bytes that only grows; an offset in it stands for the same byte permanently. Its first file bears its name, the next
ones also the offset at which they begin. No file is ever renamed, so whoever follows a log need not notice that a new one began.
"""

from __future__ import annotations

from os import scandir
from pathlib import Path
from typing import NamedTuple

from headrace.logs.names import LogName


class Segment(NamedTuple):
    """One file of a log: its bytes from the offset `start` to before `end`."""

    start: int
    end: int
    path: Path


def segment_path(root: Path, name: LogName, start: int) -> Path:
    """Return where the file is that begins at the offset `start`."""
    return root / name.folder / (f"{name.file}.{start:015d}" if start else name.file)


def segments(root: Path, name: LogName) -> list[Segment]:
    """Return the files that there are of a log, in order; none: nothing was logged, or it is elsewhere."""
    found: list[Segment] = []
    try:
        with scandir(root / name.folder) as entries:
            for entry in entries:
                start = _start(entry.name, name.file)
                if start is not None and entry.is_file(follow_symlinks=False):
                    found.append(Segment(start, start + entry.stat(follow_symlinks=False).st_size, Path(entry.path)))
    except FileNotFoundError:
        return []
    return sorted(found)


def _start(file: str, log: str) -> int | None:
    if file == log:
        return 0
    stem, _, start = file.rpartition(".")
    return int(start) if stem == log and start.isascii() and start.isdigit() else None
