"""A transaction of an Iceberg table that fails if the table has changed since it was loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots

from headrace.errors import TablesUnavailable
from headrace.pipeline.tables.iceberg.errors import iceberg_errors
from headrace.pipeline.tables.iceberg.service_errors import service_error

MAX_SNAPSHOTS: Final = 200
"""Snapshots of a table, beyond which a commit removes the oldest tenth: each commit reads and writes the list of them."""

PART_BYTES: Final = 64 * 1024 * 1024
"""The size in memory of rows that are divided into partitions together."""


class OneAttempt(Transaction):
    """A transaction that raises `CommitFailedException` if another program has committed to the table since it was loaded.

    pyiceberg would commit the same rows again, on the new version, without a look at the runs that the table has meanwhile.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._staged: tuple[tuple[TableUpdate, ...], TableMetadata] = (), table.metadata

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the staged updates. pyiceberg computes it, with a copy of all snapshots, about 18 times for each commit."""
        if self._staged[0] is not self._updates:
            self._staged = self._updates, super().table_metadata
        return self._staged[1]

    def commit_transaction(self) -> Table:
        """Commit the changes. An error stands only if the catalog does not have them: the answer to a commit may be lost.

        A client that does not receive an answer may send the commit again. The second answer is then a conflict with the first commit.
        """
        try:
            return super().commit_transaction()
        except Exception as error:
            is_uncertain = isinstance(error, CommitFailedException) or isinstance(service_error("", error), TablesUnavailable)
            newest = self._committed() if is_uncertain else None
            if newest is None:
                raise
            return newest

    def _committed(self) -> Table | None:
        """Return the newest version of the table if it has the snapshots of this transaction, or None."""
        snapshots = [update.snapshot.snapshot_id for update in self._updates if isinstance(update, AddSnapshotUpdate)]
        if not snapshots:
            return None
        newest = self._table.catalog.load_table(self._table.name())
        return newest if all(newest.snapshot_by_id(each) is not None for each in snapshots) else None

    def _register_snapshot_producer(self, producer: object) -> None:
        """Keep no snapshot that could be made again."""


def expire_old(transaction: Transaction) -> None:
    """Remove the oldest snapshots from a table that has many. Their files stay until a vacuum."""
    snapshots = transaction.table_metadata.snapshots
    if len(snapshots) > MAX_SNAPSHOTS:
        protected = {ref.snapshot_id for ref in transaction.table_metadata.refs.values()}
        oldest = sorted(snapshots, key=lambda each: each.sequence_number or 0)[: len(snapshots) - MAX_SNAPSHOTS * 9 // 10]
        with ExpireSnapshots(transaction) as expire:
            expire.by_ids([each.snapshot_id for each in oldest if each.snapshot_id not in protected])


def write_files(io: FileIO, metadata: TableMetadata, rows: pa.Table | pa.RecordBatchReader) -> list[DataFile]:
    """Write rows, with the columns of the table, to files that no version of it has yet."""
    if isinstance(rows, pa.Table):
        parts: Iterable[pa.Table | pa.RecordBatchReader] = [rows] if rows.num_rows else []
    else:
        parts = [rows] if metadata.spec().is_unpartitioned() else _tables(rows)
    with iceberg_errors(f"No rows were written to {metadata.location}"):
        return [file for part in parts for file in _dataframe_to_data_files(metadata, part, io, write_uuid=uuid4())]


def _tables(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield rows in parts, each of which is written to one file or more for each of its partitions: pyiceberg streams no partitions."""
    part: list[pa.RecordBatch] = []
    for batch in rows:
        part.append(batch)
        if sum(each.nbytes for each in part) >= PART_BYTES:
            yield pa.Table.from_batches(part)
            part = []
    if part:
        yield pa.Table.from_batches(part)


@contextmanager
def removed_on_conflict(io: FileIO, conflict: type[Exception], files: Iterable[DataFile]) -> Iterator[None]:
    """Remove the new files of a commit that conflicted with another one. After another error they may belong to the table.

    A file that cannot be removed stays until a vacuum.
    """
    try:
        yield
    except conflict:
        for file in files:
            with suppress(OSError):
                io.delete(file.file_path)
        raise
