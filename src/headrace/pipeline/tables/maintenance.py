"""Describe the tables of a folder, compact their small files, and remove files of old versions."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError, UsageError
from headrace.pipeline.table_storage.object_folder import ObjectFolder
from headrace.pipeline.table_storage.tables import Tables
from headrace.pipeline.tables.contents import OnProgress, TableContents, files_of, is_delta, read_file, read_table, table_folders
from headrace.wire.pipelines.tables import TableChange, TableCompaction, TableHistory, TableSummary, TableVacuum

_LOCKS: Final = ".compaction"


def summarize(folder: Tables) -> list[TableSummary]:
    """Return the tables of a folder. Raises `PipelineError` if a table cannot be read."""
    return [_summary(path) for path in table_folders(folder)]


def read_history(folder: Tables, name: str, limit: int, on_progress: OnProgress) -> TableHistory:
    """Return the last changes of a table. Raises `PipelineError` if it does not exist or a part of it cannot be read."""
    contents: TableContents = read_table(_existing(folder, name), on_progress)
    if contents.unreadable:
        raise PipelineError(contents.unreadable[0], hint="Restore it from a backup of the table.")
    newest = sorted(contents.entries, key=lambda entry: entry.written, reverse=True)[:limit]
    changes = [
        TableChange(
            where=entry.where,
            written=datetime.fromtimestamp(entry.written, UTC),
            rows=entry.rows,
            scope=run.scope if (run := entry.run) else None,
            pipeline=run.pipeline if run else None,
            batch=run.batch if run else None,
            attempt=run.attempt if run else None,
            run_id=run.run_id if run else None,
            code=run.code or None if run else None,
        )
        for entry in newest
    ]
    return TableHistory(table=name, changes=changes)


def compact(folder: Tables, name: str) -> TableCompaction:
    """Write the small files of a Delta table as few large ones, in one commit. Readers and pipelines may use it meanwhile.

    Raises:
        UsageError: It is a Parquet table.
        PipelineError: It does not exist, another process compacts it, or pipelines committed to it all the time.
    """
    _delta(folder, name)
    from deltalake.exceptions import DeltaError

    with _one_at_a_time(folder, name):
        table = _delta(folder, name)  # again: a compaction may have committed before the lock was free
        before = len(table.file_uris())
        try:
            with _requests(folder):
                table.optimize.compact()
        except DeltaError as error:
            raise PipelineError(
                f"The table {name!r} was not compacted: {error}", hint="It is unchanged. Try again when less is written."
            ) from error
        return TableCompaction(table=name, files_before=before, files_after=len(table.file_uris()))


def vacuum(folder: Tables, name: str, keep_hours: int, *, dry_run: bool) -> TableVacuum:
    """Remove files of a Delta table that no version needs that is younger than `keep_hours`.

    Raises:
        UsageError: It is a Parquet table.
        PipelineError: It does not exist.
    """
    table = _delta(folder, name)
    with _requests(folder):
        files: Sequence[str] = table.vacuum(keep_hours, dry_run=dry_run, enforce_retention_duration=False)
    return TableVacuum(table=name, keep_hours=keep_hours, dry_run=dry_run, files=sorted(files))


def _one_at_a_time(folder: Tables, name: str) -> AbstractContextManager[None]:
    """Keep other compactions out: deltalake commits two that began at one version, and each row is then in the table twice."""
    return _lock_on_disk(folder, name) if isinstance(folder, Path) else _lock_in_bucket(folder, name)


@contextmanager
def _lock_on_disk(folder: Path, name: str) -> Iterator[None]:
    locks = folder / _LOCKS
    locks.mkdir(exist_ok=True)
    with (locks / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PipelineError(f"Another process compacts the table {name!r}.", hint="Wait until it has ended.") from error
        yield


@contextmanager
def _lock_in_bucket(folder: ObjectFolder, name: str) -> Iterator[None]:
    """Hold an object for the compaction. It has no time limit: one that is paused for longer would commit beside its successor."""
    lock = f"{_LOCKS}/{name}.lock"
    if not folder.create(
        lock, f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC".encode()
    ):
        holder = (folder.read(lock) or b"a process that has ended meanwhile").decode(errors="replace")
        raise PipelineError(
            f"Another compaction of the table {name!r} has begun: {holder}.",
            hint=f"Wait until it has ended. If it was killed, delete the object {folder.where(lock)}.",
        )
    try:
        yield
    finally:
        folder.delete(lock)


def _existing(folder: Tables, name: str) -> Tables:
    if name not in {path.name for path in table_folders(folder)}:
        raise PipelineError(f"There is no table {name!r} in {folder}.", hint="List the tables: headrace tables list")
    return folder / name


def _requests(folder: Tables) -> AbstractContextManager[None]:
    """Describe errors of the service that has the tables in the block."""
    return nullcontext() if isinstance(folder, Path) else folder.described()


def _delta(folder: Tables, name: str) -> Any:
    path = _existing(folder, name)
    if not is_delta(path):
        raise UsageError(f"The table {name!r} has the format Parquet.", hint='This command is for tables with format="delta" or a key.')
    return _opened(path)


def _opened(path: Tables) -> Any:
    try:
        from deltalake import DeltaTable
    except ModuleNotFoundError as error:
        raise PipelineError(f"{path} is a Delta table, and deltalake is missing.", hint="pip install 'headrace[delta]'") from error
    if isinstance(path, Path):
        return DeltaTable(path)
    with path.described():
        return DeltaTable(path.url, storage_options=path.options)


def _summary(path: Tables) -> TableSummary:
    return _summary_of_parquet(path) if isinstance(path, Path) and not is_delta(path) else _summary_of_delta(path)


def _summary_of_delta(path: Tables) -> TableSummary:
    table = _opened(path)
    files = pa.table(table.get_add_actions(flatten=True))
    written = pc.max(files.column("modification_time")).as_py()  # milliseconds
    return TableSummary(
        name=path.name,
        format="delta",
        rows=table.count(),
        files=files.num_rows,
        bytes=pc.sum(files.column("size_bytes")).as_py() or 0,
        written=None if written is None else datetime.fromtimestamp(written / 1000, UTC),
    )


def _summary_of_parquet(path: Path) -> TableSummary:
    entries = []
    for file in files_of(path):
        entry = read_file(file)
        if isinstance(entry, str):
            raise PipelineError(entry, hint="Restore it from a backup of the table.")
        entries.append((entry, file.stat().st_size))
    return TableSummary(
        name=path.name,
        format="parquet",
        rows=sum(entry.rows for entry, _ in entries),
        files=len(entries),
        bytes=sum(size for _, size in entries),
        written=datetime.fromtimestamp(max(entry.written for entry, _ in entries), UTC) if entries else None,
    )
