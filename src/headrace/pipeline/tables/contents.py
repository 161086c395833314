"""Read the contents of the tables in a folder: the files and commits of runs, by their metadata alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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

OnProgress = Callable[[str, int, int], None]
"""Receives a table, the number of its files or commits that are read, and their total."""

_THREADS: Final = 8
_PROGRESS_INTERVAL: Final = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a Parquet table or a commit of a Delta table. Without a `run`, another program wrote it."""

    where: str
    rows: int
    run: RunIdentity | None
    written: float


@dataclass(slots=True)
class TableContents:
    """The contents of one table. `unreadable` has errors; `lost` names missing files of a Delta table.

    `since`: a Delta table has no history from before that time.
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


def is_delta(folder: Tables) -> bool:
    """Return whether a table is a Delta table. Tables in a bucket have no other format."""
    return not isinstance(folder, Path) or (folder / LOG).is_dir()


def read_table(folder: Tables, on_progress: OnProgress) -> TableContents:
    """Return the contents of a table."""
    if isinstance(folder, Path) and not is_delta(folder):
        return _read_parquet(folder, on_progress)
    return _read_delta(folder, on_progress)


def _is_hidden(name: str) -> bool:
    """Return whether readers of tables ignore a file or folder of this name."""
    return name.startswith((".", "_"))


def _read_parquet(folder: Path, on_progress: OnProgress) -> TableContents:
    """Read the footer of each file."""
    contents = TableContents(folder.name)
    paths = files_of(folder)
    with ThreadPoolExecutor(_THREADS) as pool:
        for number, entry in enumerate(pool.map(read_file, paths), 1):
            if isinstance(entry, Entry):
                contents.entries.append(entry)
            else:
                contents.unreadable.append(entry)
            if number % _PROGRESS_INTERVAL == 0 or number == len(paths):
                on_progress(folder.name, number, len(paths))
    return contents


def files_of(folder: Path) -> list[Path]:
    """Return the files of a Parquet table, by name."""
    return sorted(path for path in folder.rglob("*.parquet") if not any(map(_is_hidden, path.relative_to(folder).parts)))


def read_file(path: Path) -> Entry | str:
    """Return the entry of a file, or why it has none."""
    try:
        footer = pq.read_metadata(path)
        written = path.stat().st_mtime
    except (OSError, pa.ArrowException) as error:
        return f"The file {path} cannot be read: {error}"
    run = RunIdentity.parsed((footer.metadata or {}).get(RUN_KEY.encode(), b"").decode(errors="replace"))
    return Entry(f"the file {path}", footer.num_rows, run, written)


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
