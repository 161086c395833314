"""The files of a log.

Invariant: a log is a growing sequence of bytes, in which an offset always denotes the same byte. The first file has the
log's name, the others also have the offset at which they begin. Files are never renamed, so readers need not detect
that a new file began.
"""

from __future__ import annotations

from os import scandir
from pathlib import Path
from typing import NamedTuple

from headrace.logs.names import LogName


class Segment(NamedTuple):
    """One file of a log: its bytes from offset `start` to before `end`."""

    start: int
    end: int
    path: Path


def segment_path(root: Path, name: LogName, start: int) -> Path:
    """Return the path of the file that begins at offset `start`."""
    return root / name.folder / (f"{name.file}.{start:015d}" if start else name.file)


def segments(root: Path, name: LogName) -> list[Segment]:
    """Return the files of a log, in order, or [] if there is no such log here."""
    files: list[Segment] = []
    try:
        with scandir(root / name.folder) as entries:
            for entry in entries:
                start = _start(entry.name, name.file)
                if start is not None and entry.is_file(follow_symlinks=False):
                    files.append(Segment(start, start + entry.stat(follow_symlinks=False).st_size, Path(entry.path)))
    except FileNotFoundError:
        return []
    return sorted(files)


def _start(file: str, log: str) -> int | None:
    if file == log:
        return 0
    stem, _, start = file.rpartition(".")
    return int(start) if stem == log and start.isascii() and start.isdigit() else None
