"""Read the contents of the tables in a folder: the files and commits of runs, by their metadata alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from headrace.pipeline.tables.delta.log import Actions, each, read_actions, stored_rows
from headrace.pipeline.tables.parquet.run_index import MERGED_KEY, MergedRun, read_index
from headrace.pipeline.tables.sink import ICEBERG_MARK
from headrace.pipeline_declaration import TableFormat

OnProgress = Callable[[str, int, int], None]
"""Receives a table, the number of its files or commits that are read, and their total."""

_THREADS: Final = 8
_PROGRESS_INTERVAL: Final = 100


def no_progress(table: str, number: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What wrote rows: a file of a Parquet table, a run in a merged file, a commit of a Delta table or a snapshot of an Iceberg table.

    Without a `run`, another program wrote it.
    """

    where: str
    rows: int
    run: RunIdentity | None
    written: float


@dataclass(slots=True)
class TableContents:
    """The contents of one table. `unreadable` has errors; `lost` names missing files of a Delta or Iceberg table.

    `since`: the table has no history from before that time.
    """

    table: str
    entries: list[Entry] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    since: datetime | None = None


def read_tables(folder: Path, on_progress: OnProgress) -> Iterator[TableContents]:
    """Yield the contents of each table in the folder, by name.

    Raises:
        PipelineError: The folder does not exist.
    """
    for path in table_folders(folder):
        yield read_table(path, on_progress)


def table_folders(folder: Path) -> list[Path]:
    """Return the folders of the tables in a folder, by name. Raises `PipelineError` if it does not exist."""
    if not folder.is_dir():
        raise PipelineError(f"There is no folder {folder}.", hint="--tables takes the folder that has a folder for each table.")
    return sorted(path for path in folder.iterdir() if path.is_dir() and not _is_hidden(path.name))


def format_of(folder: Path) -> TableFormat:
    """Return the format of a table."""
    if (folder / "_delta_log").is_dir():
        return "delta"
    return "iceberg" if (folder / ICEBERG_MARK).is_file() else "parquet"


def read_table(folder: Path, on_progress: OnProgress) -> TableContents:
    """Return the contents of a table."""
    match format_of(folder):
        case "iceberg":
            return _read_iceberg(folder, on_progress)
        case "delta":
            return _read_delta(folder, on_progress)
        case _:
            return _read_parquet(folder, on_progress)


def _is_hidden(name: str) -> bool:
    """Return whether readers of tables ignore a file or folder of this name."""
    return name.startswith((".", "_"))


def _read_parquet(folder: Path, on_progress: OnProgress) -> TableContents:
    """Read the footer of each file, and the index of each merged file. Begin again if a compaction replaced files meanwhile."""
    while True:
        version = folder.stat().st_ino
        contents = _read_files(folder, on_progress)
        if not contents.unreadable or folder.stat().st_ino == version:
            return contents


def _read_files(folder: Path, on_progress: OnProgress) -> TableContents:
    contents = TableContents(folder.name)
    paths = files_of(folder)
    with ThreadPoolExecutor(_THREADS) as pool:
        for number, entries in enumerate(pool.map(read_file, paths), 1):
            if isinstance(entries, str):
                contents.unreadable.append(entries)
            else:
                contents.entries += entries
            if number % _PROGRESS_INTERVAL == 0 or number == len(paths):
                on_progress(folder.name, number, len(paths))
    return contents


def files_of(folder: Path) -> list[Path]:
    """Return the files of a Parquet table, by name."""
    return sorted(path for path in folder.rglob("*.parquet") if not any(map(_is_hidden, path.relative_to(folder).parts)))


def read_file(path: Path) -> Sequence[Entry] | str:
    """Return the entries of a file, one for each run of it, or why it has none."""
    try:
        footer = pq.read_metadata(path)
        written = path.stat().st_mtime
        metadata = footer.metadata or {}
        if MERGED_KEY.encode() in metadata:
            return [_merged_entry(path, run) for run in read_index(path.parent, path.name)]
    except (OSError, pa.ArrowException) as error:
        return f"The file {path} cannot be read: {error}"
    except PipelineError as error:
        return str(error)
    run = RunIdentity.parsed(metadata.get(RUN_KEY.encode(), b"").decode(errors="replace"))
    return [Entry(f"the file {path}", footer.num_rows, run, written)]


def _merged_entry(path: Path, run: MergedRun) -> Entry:
    return Entry(f"the file {path}, once {run.name}", run.rows, RunIdentity.parsed(run.run), run.written)


def _read_delta(folder: Path, on_progress: OnProgress) -> TableContents:
    """Read the table's log, and check the files that its commits added."""
    contents = TableContents(folder.name)
    log = sorted(path for path in (folder / "_delta_log").glob("*.json") if path.stem.isdecimal())
    files: dict[str, int] = {}
    for number, path in enumerate(log, 1):
        try:
            _add_commit(contents, f"version {int(path.stem)} of the table {folder.name!r}", read_actions(path), files)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            contents.unreadable.append(f"The commit {path} cannot be read: {error!r}")
        if number % _PROGRESS_INTERVAL == 0 or number == len(log):
            on_progress(folder.name, number, len(log))
    versions = [int(path.stem) for path in log]
    gaps = [before + 1 for before, after in pairwise(versions) if after != before + 1]
    contents.unreadable += [f"The log of the table {folder.name!r} has no version {version}." for version in gaps]
    if versions and versions[0] > 0:
        contents.since = datetime.fromtimestamp(min((entry.written for entry in contents.entries), default=log[0].stat().st_mtime), UTC)
    contents.lost += [f"the file {folder / name}" for name, size in files.items() if not _has(folder / name, size)]
    return contents


def _add_commit(contents: TableContents, where: str, actions: Actions, files: dict[str, int]) -> None:
    info: dict[str, Any] = next(each(actions, "commitInfo"), {})
    added, removed = list(each(actions, "add")), list(each(actions, "remove"))
    for file in removed:
        files.pop(unquote(file["path"]), None)
    files.update((unquote(file["path"]), int(file["size"])) for file in added)
    run = RunIdentity.parsed(info.get(RUN_KEY))
    if run is not None or any(file.get("dataChange", True) for file in [*added, *removed]):
        contents.entries.append(Entry(where, stored_rows(info), run, int(info.get("timestamp", 0)) / 1000))


def _read_iceberg(folder: Path, on_progress: OnProgress) -> TableContents:
    """Read the table's snapshots, and check the files of the newest one."""
    from headrace.pipeline.tables.iceberg.history import changes_of, has_whole_history
    from headrace.pipeline.tables.iceberg.maintenance import lost_files, opened

    contents = TableContents(folder.name)
    try:
        table = opened(folder)
        contents.lost += [f"the file {path}" for path in lost_files(table)]
    except (PipelineError, OSError, ValueError) as error:
        contents.unreadable.append(f"The table {folder.name!r} cannot be read: {error}")
        return contents
    changes = list(changes_of(table))
    contents.entries += [
        Entry(f"snapshot {each.snapshot} of the table {folder.name!r}", each.rows, each.run, each.seconds) for each in changes
    ]
    if not has_whole_history(table):
        contents.since = datetime.fromtimestamp(min((each.seconds for each in changes), default=0), UTC)
    on_progress(folder.name, len(changes), len(changes))
    return contents


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
