"""Merge the small files of a Delta table in one commit, and remove the files that old versions have.

Two compactions of deltalake that begin at the same version both commit, and each row is then in the table twice. So a
lock admits one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from headrace.durable_files import sync, sync_folder
from headrace.errors import PipelineError
from headrace.pipeline.table_storage.tables import Tables
from headrace.pipeline.tables.compaction.bucket_lock import bucket_lock
from headrace.pipeline.tables.compaction.file_system import CompactionUnsupported, is_local
from headrace.pipeline.tables.compaction.small_files import TARGET_BYTES, Compaction, merge_limit
from headrace.pipeline.tables.compaction.table_lock import TableBusy, compactor_lock
from headrace.pipeline.tables.delta.log import LOG, each, parse_actions

COMPACTION_ATTEMPTS: Final = 3
"""Attempts at a compaction that conflicts with commits of pipelines."""


class DeltaCompaction:
    """Compacts one Delta table in the folder `tables`."""

    def __init__(self, tables: Tables, table: str) -> None:
        self._tables = tables
        self._table = table
        self._folder = tables / table

    def run(self, at_least: int | None = None) -> Compaction | None:
        """Merge the small files if there are `at_least` of them, or all files below the target size if None.

        Return None if there are fewer.

        Raises:
            TableBusy: Another process compacts the table, or pipelines committed to it during each attempt.
            CompactionUnsupported: Other hosts can write the file system, so that a lock does not keep them out.
            PipelineError: The table cannot be read or written.
        """
        if isinstance(self._folder, Path) and not is_local(self._folder):
            raise CompactionUnsupported(
                f"The folder {self._folder} is on a file system that other hosts can write.",
                hint="Compact it by OPTIMIZE of Delta for Spark, which detects all conflicts.",
            )
        with self._lock(), _errors(self._folder):
            for _ in range(COMPACTION_ATTEMPTS):
                table = open_table(self._folder)
                sizes = _sizes(table)
                limit = TARGET_BYTES if at_least is None else merge_limit(sizes)
                if sum(size < limit for size in sizes) < max(2, at_least or 0):
                    return None
                before = table.version()
                try:
                    table.optimize.compact(target_size=limit, max_concurrent_tasks=1)
                except CommitFailedError:
                    continue
                if isinstance(self._folder, Path):
                    _make_durable(self._folder, before or 0, table.version() or 0)
                return Compaction(len(sizes), len(_sizes(table)))
        raise TableBusy(
            f"The table {self._table!r} was not compacted: pipelines committed to it during each of {COMPACTION_ATTEMPTS} attempts.",
            hint="It is unchanged. Try again when less is written.",
        )

    def vacuum(self, keep_hours: int | None = None, *, dry_run: bool = False) -> Sequence[str]:
        """Remove the files that no version needs that is younger than `keep_hours`; return them.

        None stands for the table's property `delta.deletedFileRetentionDuration`, which is 7 days if it is not set.
        """
        with _errors(self._folder):
            table = open_table(self._folder)
            return table.vacuum(keep_hours, dry_run=dry_run, enforce_retention_duration=keep_hours is None, full=True)

    def _lock(self) -> AbstractContextManager[None]:
        if isinstance(self._tables, Path):
            return compactor_lock(self._tables, self._table)
        return bucket_lock(self._tables, self._table)


def open_table(folder: Tables) -> DeltaTable:
    """Return a table. Raises the errors of deltalake, and those of the service of a bucket as `PipelineError`."""
    if isinstance(folder, Path):
        return DeltaTable(folder)
    with folder.described():
        return DeltaTable(folder.url, storage_options=folder.options)


def _make_durable(folder: Path, before: int, version: int) -> None:
    """Sync what the compaction wrote. A run that commits meanwhile does the same before it is reported."""
    log = folder / LOG
    for number in range(before + 1, version + 1):
        entry = log / f"{number:020}.json"
        for added in each(parse_actions(entry.read_bytes()), "add"):
            sync(folder / unquote(added["path"]))
        sync(entry)
    sync_folder(folder)
    sync_folder(log)


@contextmanager
def _errors(folder: Tables) -> Iterator[None]:
    """Raise the errors of deltalake, and of the service of a bucket, as `PipelineError`."""
    try:
        with nullcontext() if isinstance(folder, Path) else folder.described():
            yield
    except DeltaError as error:
        raise PipelineError(
            f"The table {folder.name!r} was not compacted or vacuumed: {error}", hint="Its rows are unchanged. Try again later."
        ) from error


def _sizes(table: DeltaTable) -> list[int]:
    sizes: list[int] = pa.table(table.get_add_actions(flatten=True)).column("size_bytes").to_pylist()
    return sizes
