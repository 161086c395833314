"""The runs whose files were merged: `_runs/<name of the merged file>`, a Parquet file with a row for each run.

A run that is executed again is looked up here under the name that its file had. The name of a merged file has the lowest
and the highest batch of its runs, so that the usual look-up, of a new batch, opens no file. The index of a merged file
never changes. Readers of Parquet ignore folders whose names begin with `_`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import PipelineError

INDEX: Final = "_runs"
"""The folder of the indexes in the folder of a table."""
MERGED_KEY: Final = "headrace.merged_runs"
"""The key in the metadata of a merged file, with the number of its runs."""

_SCHEMA: Final = pa.schema([("name", pa.string()), ("run", pa.string()), ("rows", pa.int64()), ("written", pa.float64())])
_GROUP_ROWS: Final = 4096
_RUN_FILE: Final = re.compile(r"(\d{9,})-\d{5,}-[0-9a-f]{32}\.parquet", re.ASCII)
_MERGED_FILE: Final = re.compile(r"(\d{9,})-(\d{9,})-[0-9a-f]{32}\.merged\.parquet", re.ASCII)


@dataclass(frozen=True, slots=True)
class MergedRun:
    """A run in a merged file: the name that its file had, its identity as JSON, its rows, and when they were written."""

    name: str
    run: str
    rows: int
    written: float


def is_run_file(name: str) -> bool:
    """Return whether a file of this name has the rows of one run."""
    return _RUN_FILE.fullmatch(name) is not None


def is_merged_file(name: str) -> bool:
    """Return whether a file of this name has the rows of several runs."""
    return _MERGED_FILE.fullmatch(name) is not None


def merged_name(names: Iterable[str]) -> str:
    """Return a new name for a file that has the rows of these files. They come from runs or are merged files."""
    batches = [batch for name in names for batch in _batches(name)]
    return f"{min(batches):09d}-{max(batches):09d}-{uuid4().hex}.merged.parquet"


def read_index(table: Path, name: str) -> Sequence[MergedRun]:
    """Return the runs of a merged file of a table, by name. Raises `PipelineError` if its index cannot be read."""
    return _read(table / INDEX / name)


def write_index(path: Path, runs: Iterable[MergedRun]) -> None:
    """Write the index of a merged file."""
    rows = [(run.name, run.run, run.rows, run.written) for run in sorted(runs, key=lambda run: run.name)]
    columns = [list(values) for values in zip(*rows, strict=True)]
    pq.write_table(pa.table(columns, schema=_SCHEMA), path, row_group_size=_GROUP_ROWS, compression="zstd")


class RunIndex:
    """Looks up merged runs in the tables of the folder `tables`."""

    def __init__(self, tables: Path) -> None:
        self._tables = tables
        self._known: dict[str, tuple[tuple[int, int], Sequence[tuple[int, int, str]]]] = {}  # by table: a version, and its merged files

    def find(self, table: str, name: str) -> MergedRun | None:
        """Return the run whose file had this name, or None. The caller holds the table's lock."""
        (batch,) = _batches(name)
        for first, last, merged in self._merged(table):
            if first <= batch <= last:
                runs = _read(self._tables / table / INDEX / merged, name)
                if runs:
                    return runs[0]
        return None

    def _merged(self, table: str) -> Sequence[tuple[int, int, str]]:
        """Return the batches and names of the merged files. A compaction replaces the folder of the indexes, and nothing changes in it."""
        folder = self._tables / table / INDEX
        try:
            status = folder.stat()
        except FileNotFoundError:
            return ()
        version = (status.st_ino, status.st_mtime_ns)
        if table not in self._known or self._known[table][0] != version:
            names = [path.name for path in folder.iterdir()]
            self._known[table] = version, [(*_batches(name), name) for name in names if is_merged_file(name)]  # type: ignore[misc]
        return self._known[table][1]


def _batches(name: str) -> tuple[int, ...]:
    """Return the batch of a run's file, or the lowest and the highest batch of a merged file."""
    match = _MERGED_FILE.fullmatch(name) or _RUN_FILE.fullmatch(name)
    if match is None:
        raise PipelineError(f"The file {name!r} has no name of Headrace.")
    return tuple(map(int, match.groups()))


def _read(path: Path, name: str | None = None) -> Sequence[MergedRun]:
    """Return the runs of an index, or only the one of this name."""
    try:
        table = pq.read_table(path, schema=_SCHEMA, filters=None if name is None else [("name", "==", name)])
    except (OSError, pa.ArrowException) as error:
        raise PipelineError(f"The index {path} cannot be read: {error}", hint="Restore it from a backup of the table.") from error
    return [MergedRun(**row) for row in table.to_pylist()]
