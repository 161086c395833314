"""What the tables of a folder have: the files and commits of runs, by their metadata alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import PipelineError
from headrace.pipeline.runs.identity import RUN_KEY, RunIdentity

Tell = Callable[[str, int, int], None]
"""Gets a table, how many of its files or commits are read, and how many it has."""

_THREADS: Final = 8
_TELL_EVERY: Final = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a Parquet table or a commit of a Delta table. `run` is None where another program wrote it."""

    where: str
    rows: int
    run: RunIdentity | None
    written: float


@dataclass(slots=True)
class TableContents:
    """What one table has. `unreadable` says what cannot be read; `lost` names files that a Delta table should have.

    `since`: a Delta table has no history from before that time.
    """

    table: str
    entries: list[Entry] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    since: datetime | None = None


def read_tables(folder: Path, tell: Tell) -> Iterator[TableContents]:
    """Yield what each table in the folder has, by name.

    Raises:
        PipelineError: There is no such folder.
    """
    if not folder.is_dir():
        raise PipelineError(f"There is no folder {folder}.", hint="--tables takes the folder that has a folder for each table.")
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not _is_hidden(path.name):
            yield _read_delta(path, tell) if (path / "_delta_log").is_dir() else _read_parquet(path, tell)


def _is_hidden(name: str) -> bool:
    """Return whether readers of tables pass over a file or folder of this name."""
    return name.startswith((".", "_"))


def _read_parquet(folder: Path, tell: Tell) -> TableContents:
    """Read the footer of each file."""
    found = TableContents(folder.name)
    paths = sorted(path for path in folder.rglob("*.parquet") if not any(map(_is_hidden, path.relative_to(folder).parts)))
    with ThreadPoolExecutor(_THREADS) as pool:
        for number, entry in enumerate(pool.map(_read_file, paths), 1):
            if isinstance(entry, Entry):
                found.entries.append(entry)
            else:
                found.unreadable.append(entry)
            if number % _TELL_EVERY == 0 or number == len(paths):
                tell(folder.name, number, len(paths))
    return found


def _read_file(path: Path) -> Entry | str:
    """Return the entry of a file, or why it has none."""
    try:
        footer = pq.read_metadata(path)
        written = path.stat().st_mtime
    except (OSError, pa.ArrowException) as error:
        return f"The file {path} cannot be read: {error}"
    run = RunIdentity.parsed((footer.metadata or {}).get(RUN_KEY.encode(), b"").decode(errors="replace"))
    return Entry(f"the file {path}", footer.num_rows, run, written)


def _read_delta(folder: Path, tell: Tell) -> TableContents:
    """Read the table's log, and look for the files that its commits added."""
    found = TableContents(folder.name)
    log = sorted(path for path in (folder / "_delta_log").glob("*.json") if path.stem.isdecimal())
    files: dict[str, int] = {}
    for number, path in enumerate(log, 1):
        try:
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            _add_commit(found, f"version {int(path.stem)} of the table {folder.name!r}", actions, files)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            found.unreadable.append(f"The commit {path} cannot be read: {error!r}")
        if number % _TELL_EVERY == 0 or number == len(log):
            tell(folder.name, number, len(log))
    versions = [int(path.stem) for path in log]
    gaps = [before + 1 for before, after in pairwise(versions) if after != before + 1]
    found.unreadable += [f"The log of the table {folder.name!r} has no version {version}." for version in gaps]
    if versions and versions[0] > 0:
        found.since = datetime.fromtimestamp(min((entry.written for entry in found.entries), default=log[0].stat().st_mtime), UTC)
    found.lost += [f"the file {folder / name}" for name, size in files.items() if not _has(folder / name, size)]
    return found


def _add_commit(found: TableContents, where: str, actions: list[dict[str, Any]], files: dict[str, int]) -> None:
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    added = [action["add"] for action in actions if "add" in action]
    removed = [action["remove"] for action in actions if "remove" in action]
    for each in removed:
        files.pop(unquote(each["path"]), None)
    files.update((unquote(each["path"]), int(each["size"])) for each in added)
    run = RunIdentity.parsed(info.get(RUN_KEY))
    if run is not None or any(each.get("dataChange", True) for each in [*added, *removed]):
        rows = int(info.get("operationMetrics", {}).get("num_added_rows", 0))
        found.entries.append(Entry(where, rows, run, int(info.get("timestamp", 0)) / 1000))


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
