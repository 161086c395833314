"""The batches of a scope that a table may have, durable beside its files. They show at the start that a table is ahead of the database.

`_writers/<hash of the scope>-<hash of its incarnation>.batch` has an upper bound of the batches in the table. A run
raises it by RESERVED batches at a time, before its rows become visible. So a driver checks few names, whatever the size
of the table.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from shlex import quote
from typing import Final, Protocol

from headrace.errors import PipelineError, RunConflict
from headrace.pipeline.runs.identity import Origin
from headrace.pipeline.table_storage.tables import Tables, files_in
from headrace.pipeline.tables.writers import WRITERS, scope_hash
from headrace.pipeline_declaration import Pipeline, TableFormat

RESERVED: Final = 64
"""Batches that one write of the file reserves."""


class Later(Protocol):
    """A sink that can find later runs."""

    def later(self, table: str, pipeline: str, batch: int, until: int) -> int | None:
        """Return a batch after `batch`, up to `until`, of which the table has a run of the pipeline, or None."""


class TableBatches:
    """The batches of one origin that the tables in the folder `tables` may have. Several threads may call it."""

    def __init__(self, tables: Tables, origin: Origin) -> None:
        self._tables = tables
        self._files = files_in(tables)
        self._origin = origin
        self._lock = threading.Lock()

    def reserve(self, table: str, batch: int) -> None:
        """Record durably that the table may have runs of the batch."""
        with self._lock:
            known = self._read(table)
            if known is None or batch > known:
                self._files.replace(self._name(table), f"{batch + RESERVED}".encode())

    def check(self, pipelines: Iterable[Pipeline], sinks: Mapping[TableFormat, Later], batch: int) -> None:
        """Compare the tables of the pipelines with the scope's last plan in the API, that of `batch`.

        Raises:
            RunConflict: A table has runs of a later batch: the database is older than the table.
        """
        for pipeline in pipelines:
            until = None if pipeline.table is None else self._read(pipeline.table)
            if pipeline.table is None or until is None:
                continue
            surely = until - RESERVED
            later = surely if surely > batch else sinks[pipeline.format].later(pipeline.table, pipeline.name, batch, until)
            if later is not None:
                raise self._conflict(pipeline.table, pipeline.format, later, batch)

    def _conflict(self, table: str, format: TableFormat, later: int, batch: int) -> RunConflict:
        scope = self._origin.scope
        adopt = f"headrace tables adopt {quote(table)} --tables {quote(str(self._tables))} --scope {quote(scope)} --log {self._origin.log}"
        trim = (
            "move the files of later batches, whose names begin with the batch, out of the table (unless a merged file, with two batches "
            f"in its name, has earlier ones too), then: {adopt}; or "
        )
        return RunConflict(
            f"The table {table!r} has rows of batch {later} of the scope {scope!r}, whose last batch in the database is {batch}: "
            "the database was restored from a backup.",
            hint=f"Restore the newest database; or {trim if format == 'parquet' else ''}"
            f"reset the scope with: headrace scopes reset {quote(scope)} --from SEQ (the first event that the tables do not have).",
        )

    def _name(self, table: str) -> str:
        incarnation = blake2b(f"{self._origin.log}/{self._origin.incarnation}".encode(), digest_size=8).hexdigest()
        return f"{table}/{WRITERS}/{scope_hash(self._origin.scope)}-{incarnation}.batch"

    def _read(self, table: str) -> int | None:
        name = self._name(table)
        data = self._files.read(name)
        try:
            return None if data is None else int(data)
        except ValueError as error:
            raise PipelineError(
                f"The file {self._files.where(name)} cannot be read: {error}", hint="Restore it from a backup of the table."
            ) from error
