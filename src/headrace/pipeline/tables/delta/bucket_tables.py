"""Delta tables in a folder of a bucket. The server creates each commit once, under the condition that no other has its version."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from headrace.pipeline.table_storage.object_folder import ObjectFolder


class BucketDeltaTables:
    """The Delta tables in the folder `tables`; see `DeltaTables`."""

    def __init__(self, tables: ObjectFolder) -> None:
        self._tables = tables

    def open(self, name: str) -> DeltaTable | None:
        """Return a table, or None if it does not exist."""
        with self._tables.described():
            try:
                return DeltaTable((self._tables / name).url, storage_options=self._tables.options)
            except TableNotFoundError:
                return None

    def create(self, name: str, columns: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
        """Create a table without rows. Raises `DeltaError` if it exists."""
        url, options = (self._tables / name).url, self._tables.options
        with self._tables.described():
            return DeltaTable.create(url, columns, mode="error", partition_by=list(partition_by) or None, storage_options=options)

    def make_durable(self, name: str, app: str, version: int) -> None:
        """Do nothing: a write of the object store is durable when it is answered."""

    def requests(self) -> AbstractContextManager[None]:
        """Raise `TablesRefused` or `TablesUnavailable` for errors of the service in the block."""
        return self._tables.described()
