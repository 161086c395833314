"""The tables of pipelines, as `headrace tables` prints them in JSON."""

from __future__ import annotations

from headrace.wire.base import Timestamp, WireModel


class TableSummary(WireModel):
    """A table. Its files and bytes are those of its newest version. `written` is null if it has no file."""

    name: str
    format: str
    rows: int
    files: int
    bytes: int
    written: Timestamp | None


class TableList(WireModel):
    """The tables of a folder, by name."""

    tables: list[TableSummary]


class TableChange(WireModel):
    """A commit of a table or a file of a Parquet table, and the run that made it. Without a run, another program made it.

    `code` is the version of the pipeline's code: `commit HEX` of Git, or `function HEX`, a digest of the function's source.
    """

    where: str
    written: Timestamp
    rows: int
    scope: str | None
    pipeline: str | None
    batch: int | None
    attempt: int | None
    run_id: str | None
    code: str | None


class TableHistory(WireModel):
    """The last changes of a table, newest first."""

    table: str
    changes: list[TableChange]


class TableCompaction(WireModel):
    """The files of a table before and after a compaction."""

    table: str
    files_before: int
    files_after: int


class TableVacuum(WireModel):
    """The files of a table that no version of the last `keep_hours` has. They were removed, or only listed if it is a `dry_run`."""

    table: str
    keep_hours: int
    dry_run: bool
    files: list[str]
