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
from pathlib import Path
from shlex import quote
from typing import Final
from uuid import uuid4

from headrace.durable_files import create, sync, sync_folder
from headrace.errors import PipelineError, RunConflict
from headrace.pipeline.runs.identity import Writer

WRITERS: Final = "_writers"
"""The folder of these files in the folder of a table."""

_NAME_BYTES: Final = 16


class TableWriters:
    """The writers of the tables in the folder `tables`."""

    def __init__(self, tables: Path) -> None:
        self._tables = tables
        self._known: dict[Path, tuple[tuple[int, int], Writer]] = {}  # by file: its version, and its content

    def check(self, table: str, writer: Writer) -> bool:
        """Return whether the table is known to have runs of the writer.

        Raises:
            RunConflict: It has runs of this scope name from another log.
        """
        known = self._read(self._path(table, writer.scope))
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
        if self.check(table, writer):
            return
        path = self._path(table, writer.scope)
        draft = self._draft(path, writer)
        try:
            create(path, draft)
        finally:
            draft.unlink(missing_ok=True)
        self._sync(path)
        self.check(table, writer)

    def adopt(self, table: str, writer: Writer) -> Writer | None:
        """Assign the scope to the writer's log and delete its batches; return the previous writer or None.

        Raises:
            PipelineError: The table does not exist.
        """
        if not (self._tables / table).is_dir():
            raise PipelineError(f"There is no table {table!r} in {self._tables}.", hint="Say with --tables where the tables are.")
        path = self._path(table, writer.scope)
        known = self._read(path)
        self._draft(path, writer).replace(path)
        for batches in path.parent.glob(f"{scope_hash(writer.scope)}-*.batch"):
            batches.unlink(missing_ok=True)
        self._sync(path)
        return known

    def of(self, table: str) -> Iterable[Writer]:
        """Return the writers of a table."""
        writers = (self._read(path) for path in sorted((self._tables / table / WRITERS).glob("[!.]*.json")))
        return [writer for writer in writers if writer is not None]

    def _path(self, table: str, scope: str) -> Path:
        return self._tables / table / WRITERS / f"{scope_hash(scope)}.json"

    def _read(self, path: Path) -> Writer | None:
        try:
            status = path.stat()
            version = (status.st_ino, status.st_mtime_ns)
            if path not in self._known or self._known[path][0] != version:
                self._known[path] = version, Writer(**json.loads(path.read_text()))
            return self._known[path][1]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise PipelineError(f"The file {path} cannot be read: {error}", hint="Restore it from a backup of the table.") from error

    @staticmethod
    def _draft(path: Path, writer: Writer) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.stem}.{uuid4().hex}")
        draft.write_text(json.dumps(asdict(writer)))
        sync(draft)
        return draft

    @staticmethod
    def _sync(path: Path) -> None:
        for folder in path.parents[:3]:  # _writers, the table, the tables
            sync_folder(folder)


def scope_hash(scope: str) -> str:
    """Return a name for the scope that is valid in any file system."""
    return blake2b(scope.encode(), digest_size=_NAME_BYTES).hexdigest()
