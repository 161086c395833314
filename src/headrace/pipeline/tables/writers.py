"""The event log from which each scope writes a table, durable beside the table's files: `_writers/<hash of the scope>.json`.

The first run of a scope creates the file, exclusively. A driver with the same scope name on another log (a new,
restored or switched database) is rejected before it writes anything. A check reads one small file, whatever the size of
the table. Readers of Parquet and Delta ignore folders whose names begin with `_`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from hashlib import blake2b
from shlex import quote
from typing import Final

from headrace.errors import PipelineError, RunConflict
from headrace.pipeline.runs.identity import Writer
from headrace.pipeline.table_storage.tables import Tables, files_in

WRITERS: Final = "_writers"
"""The folder of these files in the folder of a table."""

_NAME_BYTES: Final = 16


class TableWriters:
    """The writers of the tables in the folder `tables`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._files = files_in(tables)

    def check(self, table: str, writer: Writer) -> bool:
        """Return whether the table is known to have runs of the writer.

        Raises:
            RunConflict: It has runs of this scope name from another log.
        """
        known = self._read(_name(table, writer.scope))
        if known is None or known == writer:
            return known is not None
        raise RunConflict(
            f"The table {table!r} has rows of the scope {writer.scope!r} from the event log {known.log}, and this driver reads "
            f"the event log {writer.log}: the api has another database.",
            hint="Bring the database back that the table belongs to, or write to other tables. To go on with this log: "
            f"headrace tables adopt {quote(table)} --tables {quote(str(self._tables))} --scope {quote(writer.scope)} --log {writer.log}",
        )

    def register(self, table: str, writer: Writer) -> None:
        """Record the writer durably, unless the table has it already.

        Raises:
            RunConflict: As for `check`. If two logs register concurrently, one of them is recorded.
        """
        if not self.check(table, writer):
            self._files.create(_name(table, writer.scope), _content(writer))
            self.check(table, writer)

    def adopt(self, table: str, writer: Writer) -> Writer | None:
        """Assign the scope to the writer's log and delete its batches; return the previous writer or None.

        Raises:
            PipelineError: The table does not exist.
        """
        if table not in self._files.folders():
            raise PipelineError(f"There is no table {table!r} in {self._tables}.", hint="Say with --tables where the tables are.")
        name = _name(table, writer.scope)
        known = self._read(name)
        self._files.replace(name, _content(writer))
        folder = f"{table}/{WRITERS}"
        for batches in self._files.names(folder):
            if batches.startswith(f"{scope_hash(writer.scope)}-") and batches.endswith(".batch"):
                self._files.delete(f"{folder}/{batches}")
        return known

    def of(self, table: str) -> Iterable[Writer]:
        """Return the writers of a table."""
        folder = f"{table}/{WRITERS}"
        writers = (self._read(f"{folder}/{name}") for name in self._files.names(folder) if name.endswith(".json"))
        return [writer for writer in writers if writer is not None]

    def _read(self, name: str) -> Writer | None:
        data = self._files.read(name)
        try:
            return None if data is None else Writer(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise PipelineError(
                f"The file {self._files.where(name)} cannot be read: {error}", hint="Restore it from a backup of the table."
            ) from error


def _name(table: str, scope: str) -> str:
    return f"{table}/{WRITERS}/{scope_hash(scope)}.json"


def _content(writer: Writer) -> bytes:
    return json.dumps(asdict(writer)).encode()


def scope_hash(scope: str) -> str:
    """Return a name for the scope that is valid in any file system."""
    return blake2b(scope.encode(), digest_size=_NAME_BYTES).hexdigest()
