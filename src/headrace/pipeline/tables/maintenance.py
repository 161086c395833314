"""Describe the tables of a folder, compact their small files, and remove files of old versions."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.pipeline.table_storage.tables import Tables
from headrace.pipeline.tables.contents import OnProgress, TableContents, files_of, format_of, no_progress, read_table, table_folders
from headrace.pipeline.tables.format_compaction import open_compaction
from headrace.wire.pipelines.tables import TableChange, TableCompaction, TableHistory, TableSummary, TableVacuum


def summarize(folder: Tables) -> list[TableSummary]:
    """Return the tables of a folder. Raises `PipelineError` if a table cannot be read."""
    return [_summary(path) for path in table_folders(folder)]


def read_history(folder: Tables, name: str, limit: int, on_progress: OnProgress) -> TableHistory:
    """Return the last changes of a table. Raises `PipelineError` if it does not exist or a part of it cannot be read."""
    contents = _contents(_existing(folder, name), on_progress)
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
    """Write the small files of a table as few large ones, in one step. Readers and pipelines may use it meanwhile.

    Raises:
        PipelineError: It does not exist, cannot be compacted where it is, or is used by another compaction or pipelines.
    """
    path = _existing(folder, name)
    result = open_compaction(folder, name, format_of(path)).run()
    if result is None:
        files = _summary(path).files
        return TableCompaction(table=name, files_before=files, files_after=files)
    return TableCompaction(table=name, files_before=result.before, files_after=result.after)


def vacuum(folder: Tables, name: str, keep_hours: int, *, dry_run: bool) -> TableVacuum:
    """Remove files of a table that were replaced more than `keep_hours` ago.

    Raises:
        PipelineError: It does not exist.
    """
    files = open_compaction(folder, name, format_of(_existing(folder, name))).vacuum(keep_hours, dry_run=dry_run)
    return TableVacuum(table=name, keep_hours=keep_hours, dry_run=dry_run, files=sorted(files))


def _contents(path: Tables, on_progress: OnProgress) -> TableContents:
    contents = read_table(path, on_progress)
    if contents.unreadable:
        raise PipelineError(contents.unreadable[0], hint="Restore it from a backup of the table.")
    return contents


def _existing(folder: Tables, name: str) -> Tables:
    if name not in {path.name for path in table_folders(folder)}:
        raise PipelineError(f"There is no table {name!r} in {folder}.", hint="List the tables: headrace tables list")
    return folder / name


def _summary(path: Tables) -> TableSummary:
    if isinstance(path, Path):
        match format_of(path):
            case "iceberg":
                return _summary_of_iceberg(path)
            case "parquet":
                return _summary_of_parquet(path)
    return _summary_of_delta(path)


def _summary_of_iceberg(path: Path) -> TableSummary:
    try:
        from headrace.pipeline.tables.iceberg.maintenance import summary_of
    except ModuleNotFoundError as error:
        raise PipelineError(f"{path} is an Iceberg table, and pyiceberg is missing.", hint="pip install 'headrace[iceberg]'") from error
    return summary_of(path)


def _summary_of_delta(path: Tables) -> TableSummary:
    try:
        from headrace.pipeline.tables.delta.compaction import open_table
    except ModuleNotFoundError as error:
        raise PipelineError(f"{path} is a Delta table, and deltalake is missing.", hint="pip install 'headrace[delta]'") from error
    table = open_table(path)
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
    contents = _contents(path, no_progress)
    sizes = [file.stat().st_size for file in files_of(path)]
    return TableSummary(
        name=path.name,
        format="parquet",
        rows=sum(entry.rows for entry in contents.entries),
        files=len(sizes),
        bytes=sum(sizes),
        written=datetime.fromtimestamp(max(entry.written for entry in contents.entries), UTC) if contents.entries else None,
    )
