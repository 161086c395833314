"""Delta tables in a folder of a disk. Their commits are synced, so that they survive a power cut."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import count, takewhile
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from headrace.durable_files import sync, sync_folder
from headrace.errors import PipelineError
from headrace.pipeline.tables.delta.log import LOG, each, parse_actions
from headrace.pipeline.tables.sink import ICEBERG_MARK

UNSYNCED_COMMITS: Final = 64
"""Newest commits of a table that drivers which died may not have synced to the disk."""


class LocalDeltaTables:
    """The Delta tables in the folder `tables`; see `DeltaTables`."""

    def __init__(self, tables: Path) -> None:
        self._tables = tables
        self._durable: dict[str, int] = {}  # the version up to which this process synced a table's log to the disk

    def open(self, name: str) -> DeltaTable | None:
        """Return a table, or None if it does not exist. Raises `PipelineError` if it is a Parquet table."""
        folder = self._tables / name
        if (folder / LOG).exists():
            self._remove_empty_creation(name)
            try:
                return DeltaTable(folder)
            except TableNotFoundError:
                return None  # its first commit is pending
        if (folder / ICEBERG_MARK).exists():
            raise PipelineError(f"{folder} holds an Iceberg table.", hint="Say format='iceberg' at the pipeline, or move it away.")
        if any(folder.glob("*.parquet")):
            raise PipelineError(
                f"{folder} holds a table of plain Parquet files, and the pipeline writes Delta.",
                hint=f"Make it one (`from deltalake import convert_to_deltalake; convert_to_deltalake({str(folder)!r})`) or move it away.",
            )
        return None

    def create(self, name: str, columns: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
        """Create a table without rows, durably. Raises `DeltaError` if it exists."""
        folder = self._tables / name
        folder.mkdir(parents=True, exist_ok=True)
        table = DeltaTable.create(folder, columns, mode="error", partition_by=list(partition_by) or None)
        sync(folder / LOG / f"{0:020}.json")
        sync_folder(folder / LOG)
        return table

    def make_durable(self, name: str, app: str, version: int) -> None:
        """Sync the table's log from `version` on, and the files of the commits with this application transaction and of compactions.

        The run is reported as stored after this. Earlier commits that this process has not synced are included, because
        readers need all of them.
        """
        folder = self._tables / name
        log = folder / LOG
        known = self._durable.get(name, version - UNSYNCED_COMMITS)
        for number in count(max(0, min(known + 1, version))):
            entry = log / f"{number:020}.json"
            if not entry.exists():
                if number < version:
                    continue  # expired
                break
            actions = parse_actions(entry.read_bytes())
            apps = [txn["appId"] for txn in each(actions, "txn")]
            if not apps or app in apps:  # a compaction has none: its files replace those of reported runs
                for added in each(actions, "add"):
                    path = folder / unquote(added["path"])
                    with suppress(FileNotFoundError):  # a later version does not need it, and a vacuum has removed it
                        sync(path)
                        for partition in takewhile(lambda parent: parent != folder, path.parents):
                            sync_folder(partition)
            sync(entry)
            known = number
        sync_folder(log)
        sync_folder(folder)
        sync_folder(folder.parent)
        self._durable[name] = max(known, self._durable.get(name, -1))

    def requests(self) -> AbstractContextManager[None]:
        """Leave errors in the block as they are."""
        return nullcontext()

    def _remove_empty_creation(self, name: str) -> None:
        """Remove the log of a table whose creation has no bytes: a power cut lost it before it was synced, and before any row was reported.

        A log with later commits that have bytes stays as it is.
        """
        log = self._tables / name / LOG
        try:
            is_empty = (log / f"{0:020}.json").stat().st_size == 0
        except FileNotFoundError:
            return
        if is_empty:
            entries = [path for path in log.glob("*.json") if path.stem.isdecimal()]
            if not any(path.stat().st_size for path in entries):
                for path in entries:
                    path.unlink(missing_ok=True)
