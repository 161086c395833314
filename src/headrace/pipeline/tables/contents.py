"""Read the contents of the tables in a folder: the files and commits of runs, by their metadata alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import PipelineError, TablesRefused, TablesUnavailable
from headrace.pipeline.runs.identity import RUN_KEY, RunIdentity
from headrace.pipeline.table_storage.atomic_files import AtomicFiles
from headrace.pipeline.table_storage.tables import Tables, files_in
from headrace.pipeline.tables.delta.log import LOG, each, parse_actions, stored_rows
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


def read_tables(folder: Tables, on_progress: OnProgress) -> Iterator[TableContents]:
    """Yield the contents of each table in the folder, by name.

    Raises:
        PipelineError: The folder does not exist.
    """
    for path in table_folders(folder):
        yield read_table(path, on_progress)


def table_folders(folder: Tables) -> list[Tables]:
    """Return the folders of the tables in a folder, by name. Raises `PipelineError` if it does not exist."""
    if isinstance(folder, Path) and not folder.is_dir():
        raise PipelineError(f"There is no folder {folder}.", hint="--tables takes the folder that has a folder for each table.")
    return [folder / name for name in files_in(folder).folders() if not _is_hidden(name)]


def format_of(folder: Tables) -> TableFormat:
    """Return the format of a table. Tables in a bucket have no other format than Delta."""
    if not isinstance(folder, Path) or (folder / LOG).is_dir():
        return "delta"
    return "iceberg" if (folder / ICEBERG_MARK).is_file() else "parquet"


def read_table(folder: Tables, on_progress: OnProgress) -> TableContents:
    """Return the contents of a table."""
    if isinstance(folder, Path):
        match format_of(folder):
            case "iceberg":
                return _read_iceberg(folder, on_progress)
            case "parquet":
                return _read_parquet(folder, on_progress)
    return _read_delta(folder, on_progress)


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


def _read_delta(folder: Tables, on_progress: OnProgress) -> TableContents:
    """Read the table's log, and check the files that its commits added."""
    contents = TableContents(folder.name)
    stored = files_in(folder)
    log = [name for name in stored.names(LOG) if name.endswith(".json") and name.removesuffix(".json").isdecimal()]
    files: dict[str, int] = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        for number, (name, data) in enumerate(zip(log, pool.map(partial(_commit_of, stored), log), strict=True), 1):
            try:
                _add_commit(contents, int(name.removesuffix(".json")), data, files)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                contents.unreadable.append(f"The commit {stored.where(f'{LOG}/{name}')} cannot be read: {error!r}")
            if number % _PROGRESS_INTERVAL == 0 or number == len(log):
                on_progress(folder.name, number, len(log))
    versions = [int(name.removesuffix(".json")) for name in log]
    gaps = [before + 1 for before, after in pairwise(versions) if after != before + 1]
    contents.unreadable += [f"The log of the table {folder.name!r} has no version {version}." for version in gaps]
    if versions and versions[0] > 0:
        contents.since = datetime.fromtimestamp(min((entry.written for entry in contents.entries), default=time.time()), UTC)
    sizes = stored.sizes()
    contents.lost += [f"the file {stored.where(name)}" for name, size in files.items() if sizes.get(name) != size]
    return contents


def _commit_of(files: AtomicFiles, name: str) -> bytes | PipelineError | None:
    """Return the content of a commit, or the error of its disk."""
    try:
        return files.read(f"{LOG}/{name}")
    except (TablesRefused, TablesUnavailable):
        raise
    except PipelineError as error:
        return error


def _add_commit(contents: TableContents, version: int, data: bytes | PipelineError | None, files: dict[str, int]) -> None:
    if not isinstance(data, bytes):
        raise ValueError(str(data or "it was deleted meanwhile"))
    actions = parse_actions(data)
    info: dict[str, Any] = next(each(actions, "commitInfo"), {})
    added, removed = list(each(actions, "add")), list(each(actions, "remove"))
    for file in removed:
        files.pop(unquote(file["path"]), None)
    files.update((unquote(file["path"]), int(file["size"])) for file in added)
    run = RunIdentity.parsed(info.get(RUN_KEY))
    if run is not None or any(file.get("dataChange", True) for file in [*added, *removed]):
        where = f"version {version} of the table {contents.table!r}"
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
        oldest = min((each.seconds for each in changes), default=table.metadata.snapshots[0].timestamp_ms / 1000)  # a compaction
        contents.since = datetime.fromtimestamp(oldest, UTC)
    on_progress(folder.name, len(changes), len(changes))
    return contents
