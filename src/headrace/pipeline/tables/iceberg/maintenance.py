"""Describe Iceberg tables, compact their small files, and remove files of old snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileType
from pyiceberg.exceptions import CommitFailedException, ValidationError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots

from headrace.errors import PipelineError
from headrace.pipeline.tables.compaction.small_files import Compaction, merge_limit
from headrace.pipeline.tables.compaction.table_lock import TableBusy
from headrace.pipeline.tables.iceberg.catalog import FILE_BYTES, IcebergTables
from headrace.pipeline.tables.iceberg.errors import iceberg_errors
from headrace.pipeline.tables.iceberg.transaction import OneAttempt, removed_on_conflict, write_files
from headrace.wire.pipelines.tables import TableSummary

SMALL_BYTES: Final = FILE_BYTES // 8
"""Files of this size on the disk or more are not compacted: with compression, they have about FILE_BYTES in memory."""
COMPACTION_ATTEMPTS: Final = 3
"""Attempts at a compaction that conflicts with commits of pipelines."""
MAX_SNAPSHOT_AGE: Final = "history.expire.max-snapshot-age-ms"
MAX_SNAPSHOT_AGE_MS: Final = 432_000_000
"""The default of Iceberg."""


def summary_of(folder: Path) -> TableSummary:
    """Return the summary of a table."""
    table = opened(folder)
    with iceberg_errors(f"The Iceberg table {folder.name!r} was not read"):
        files = [task.file for task in table.scan().plan_files()]
        rows = table.scan().count()
    snapshot = table.current_snapshot()
    return TableSummary(
        name=folder.name,
        format="iceberg",
        rows=rows,
        files=len(files),
        bytes=sum(file.file_size_in_bytes for file in files),
        written=None if snapshot is None else datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
    )


def lost_files(table: Table) -> Iterator[str]:
    """Yield the files of the newest version that do not exist, or have another size."""
    with iceberg_errors(f"The files of the Iceberg table {table.name()[-1]!r} were not checked"):
        for task in table.scan().plan_files():
            file = table.io.new_input(task.file.file_path)
            if not file.exists() or len(file) != task.file.file_size_in_bytes:
                yield task.file.file_path


class IcebergCompaction:
    """Compacts one Iceberg table in the folder `tables`. The catalog refuses a commit that conflicts with another one."""

    def __init__(self, tables: Path, table: str) -> None:
        self._folder = tables / table

    def run(self, at_least: int | None = None) -> Compaction | None:
        """Merge the small files if there are `at_least` of them, or all if None, in one commit. Return None if there are fewer.

        Raises:
            TableBusy: Pipelines committed to the table during each attempt.
            PipelineError: Its catalog or files cannot be used.
        """
        for attempt in range(1, COMPACTION_ATTEMPTS + 1):
            try:
                return _compact(opened(self._folder), at_least)
            except CommitFailedException as error:
                if attempt == COMPACTION_ATTEMPTS:
                    raise TableBusy(
                        f"The table {self._folder.name!r} was not compacted: {error}",
                        hint="It is unchanged. Try again when less is written.",
                    ) from error
        raise AssertionError

    def vacuum(self, keep_hours: int | None = None, *, dry_run: bool = False) -> Sequence[str]:
        """Remove the snapshots that are older than `keep_hours`, and the older files that no other snapshot needs; return the files.

        None stands for the table's property `history.expire.max-snapshot-age-ms`, which is 5 days if it is not set.

        Raises:
            PipelineError: Pipelines committed to it meanwhile, its catalog or files cannot be used, pyarrow cannot list its files, or its
                folder has files of another table.
        """
        table = opened(self._folder)
        age = int(table.properties.get(MAX_SNAPSHOT_AGE, MAX_SNAPSHOT_AGE_MS)) if keep_hours is None else keep_hours * 3_600_000
        return _vacuum(table, datetime.now(UTC) - timedelta(milliseconds=age), dry_run=dry_run)


@iceberg_errors("The table was not compacted")
def _compact(table: Table, at_least: int | None) -> Compaction | None:
    tasks = list(table.scan().plan_files())
    sizes = [task.file.file_size_in_bytes for task in tasks]
    limit = SMALL_BYTES if at_least is None else min(SMALL_BYTES, merge_limit(sizes))
    small = _mergeable([task for task in tasks if task.file.file_size_in_bytes < limit or task.delete_files])
    if len(small) < max(2, at_least or 0):
        return None
    transaction = OneAttempt(table)
    written: list[DataFile] = []
    with removed_on_conflict(table.io, CommitFailedException, written):
        written += write_files(table.io, table.metadata, _reader(table, small))
        with transaction.update_snapshot().overwrite() as snapshot:
            for task in small:
                snapshot.delete_data_file(task.file)
            for file in written:
                snapshot.append_data_file(file)
        transaction.commit_transaction()
    return Compaction(len(tasks), len(tasks) - len(small) + len(written))


def _mergeable(tasks: Sequence[FileScanTask]) -> list[FileScanTask]:
    """Return the files of partitions with several of them, or with deleted rows, partition by partition."""
    partitions: dict[tuple[object, ...], list[FileScanTask]] = {}
    for task in tasks:
        values = task.file.partition
        partitions.setdefault((task.file.spec_id, *(values[index] for index in range(len(values)))), []).append(task)
    return [task for group in partitions.values() for task in group if len(group) > 1 or task.delete_files]


@iceberg_errors("The table was not vacuumed")
def _vacuum(table: Table, end: datetime, *, dry_run: bool) -> list[str]:
    name = table.name()[-1]
    if not isinstance(table.io, PyArrowFileIO):
        raise PipelineError(
            f"The files of the table {name!r} cannot be listed: py-io-impl is {type(table.io).__name__}.",
            hint="Use expire_snapshots and remove_orphan_files of Iceberg in Spark.",
        )
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    retained = [each for each in table.metadata.snapshots if each.snapshot_id in heads or each.timestamp_ms >= end.timestamp() * 1000]
    if not dry_run and len(retained) < len(table.metadata.snapshots):
        transaction = OneAttempt(table)
        with ExpireSnapshots(transaction) as expire:
            expire.by_ids(sorted({each.snapshot_id for each in table.metadata.snapshots} - {each.snapshot_id for each in retained}))
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise PipelineError(f"The table {name!r} was not vacuumed: {error}", hint="It is unchanged. Try again.") from error
    unused = _unused(table, table.io, retained, end)
    if not dry_run:
        for path in unused:
            table.io.delete(path)
    return unused


def _unused(table: Table, io: PyArrowFileIO, retained: Iterable[Snapshot], end: datetime) -> list[str]:
    """Return the files from before `end` that none of the snapshots needs. Younger ones may belong to a commit in flight."""
    used = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in retained:
        used.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(io):
            used.add(manifest.manifest_path)
            used.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io))
    scheme, netloc, root = io.parse_location(table.location(), io.properties)
    paths = {io.parse_location(location, io.properties)[2]: location for location in used}
    files = io.fs_by_scheme(scheme, netloc)
    folders = [FileSelector(f"{root}/{name}", allow_not_found=True, recursive=True) for name in ("data", "metadata")]
    listed = [info for folder in folders for info in files.get_file_info(folder) if info.type == FileType.File]
    unused = {f"{table.location()}{info.path.removeprefix(root)}": info for info in listed if _of_checksum(info) not in paths}
    _check_of_one_table(table, io, unused)
    return sorted(location for location, info in unused.items() if info.mtime < end)


def _of_checksum(info: FileInfo) -> str:
    """Return the path of a file, or of the file of which it is the checksum: Hadoop writes `.NAME.crc` beside NAME."""
    name = info.base_name
    is_checksum = name.startswith(".") and name.endswith(".crc")
    return f"{info.path.removesuffix(name)}{name[1:-4]}" if is_checksum else f"{info.path}"


def _check_of_one_table(table: Table, io: PyArrowFileIO, unused: Iterable[str]) -> None:
    """Raise `PipelineError` if the folder has metadata of another table: a renamed table stays where it was, and its name may be reused."""
    for location in unused:
        if not location.endswith(".metadata.json"):
            continue
        with suppress(FileNotFoundError, ValidationError, ValueError):  # removed meanwhile, or incomplete
            if FromInputFile.table_metadata(io.new_input(location)).table_uuid != table.metadata.table_uuid:
                raise PipelineError(
                    f"The table {table.name()[-1]!r} was not vacuumed: {table.location()} also has files of another table, as {location}.",
                    hint="Move one of the tables to another location. If the other one no longer exists, delete this file, then try again.",
                )


def _reader(table: Table, tasks: Sequence[FileScanTask]) -> pa.RecordBatchReader:
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    return pa.RecordBatchReader.from_batches(table.schema().as_arrow(), scan.to_record_batches(tasks))


def opened(folder: Path) -> Table:
    """Return the newest version of the table in a folder. Raises `PipelineError` if the catalog does not have it."""
    table = IcebergTables(folder.parent).open(folder.name)
    if table is None:
        raise PipelineError(
            f"The catalog has no Iceberg table {folder.name!r}.", hint="Its folder was moved: Iceberg has absolute paths. Move it back."
        )
    return table
