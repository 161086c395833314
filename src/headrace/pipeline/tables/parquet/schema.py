"""The schema of a Parquet table, durable beside its files: `_schema/<version>.parquet`, files without rows.

Each version adds columns to the one before and changes none. It is created exclusively, so if two pipelines add a
column at the same time, one of them reads what the other added first. Readers of Parquet ignore folders whose names
begin with `_`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.durable_files import create, sync, sync_folder
from headrace.errors import PipelineError, TypeConflict
from headrace.pipeline.tables.column_types import canonical, widened

SCHEMAS: Final = "_schema"
"""The folder of the schemas in the folder of a table."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table's schema; -1 is that of a table without files."""

    version: int
    schema: pa.Schema


class TableSchemas:
    """The schemas of the tables in the folder `tables`."""

    def __init__(self, tables: Path) -> None:
        self._tables = tables
        self._known: dict[str, TableSchema] = {}

    def read(self, table: str) -> TableSchema:
        """Return the newest schema of the table.

        Raises:
            TypeConflict: The table has no schema yet, and the types of its files differ.
        """
        known = self._known.get(table)
        if known is None or not self._path(table, known.version).exists():
            versions = [int(path.stem) for path in (self._tables / table / SCHEMAS).glob("[0-9]*.parquet")]
            if not versions:
                self._known.pop(table, None)
                return self._of_files(table)
            sync_folder(self._tables / table / SCHEMAS)  # the driver that added the newest version may have died before it synced
            known = TableSchema(max(versions), self._load(table, max(versions)))
        while self._path(table, known.version + 1).exists():
            known = TableSchema(known.version + 1, self._load(table, known.version + 1))
        self._known[table] = known
        return known

    def add(self, table: str, version: int, schema: pa.Schema, draft: Path) -> bool:
        """Make the schema the table's `version`, durably, through the new file `draft`. Return False if the version exists already."""
        path = self._path(table, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(schema.empty_table(), draft)
        sync(draft)
        created = create(path, draft)
        if created:
            sync_folder(path.parent)
            self._known[table] = TableSchema(version, schema)
        return created

    def _of_files(self, table: str) -> TableSchema:
        """Return the common schema of a table's files. Needed once, for a table that another program created."""
        schema = pa.schema([])
        for path in sorted((self._tables / table).glob("*.parquet")):
            try:
                schema = widened(schema, canonical(pq.read_schema(path)), table)
            except TypeConflict as error:
                raise TypeConflict(
                    f"The files of the table {table!r} have different types, so readers cannot read it: {path.name}: {error}",
                    hint="Rewrite the files with one type for each column, or give the pipeline another table.",
                ) from error
        return TableSchema(-1, schema)

    def _load(self, table: str, version: int) -> pa.Schema:
        path = self._path(table, version)
        try:
            return canonical(pq.read_schema(path))
        except (OSError, pa.ArrowInvalid) as error:
            raise PipelineError(f"The schema {path} cannot be read: {error}", hint="Restore it from a backup of the table.") from error

    def _path(self, table: str, version: int) -> Path:
        return self._tables / table / SCHEMAS / f"{version:09d}.parquet"
