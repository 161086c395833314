"""Merge the small files of a Parquet table. A reader lists the small files or the merged ones, and never both.

The merged files are written into a new folder, which gets hard links to all other files of the table. Then the two
folders are exchanged in one step, while no writer adds a file, and some time after the last listing of the folder.
Killed at any point, a compaction leaves the old folder or the new one under the table's name. The other one is removed
later.

Readers such as pyarrow and Spark read the names of a folder, then look at each file by its path, and leave out files
that have vanished. So an exchange during a listing would show them a part of the rows, without an error.

The old folder stays for some time as it was. A reader that has opened the folder itself, and not only its name, goes on
in it.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.durable_files import sync, sync_folder
from headrace.errors import PipelineError
from headrace.pipeline.runs.identity import RUN_KEY
from headrace.pipeline.tables.column_types import conformed
from headrace.pipeline.tables.compaction.file_system import CompactionUnsupported, exchange, is_local
from headrace.pipeline.tables.compaction.listing_watch import ListingWatch
from headrace.pipeline.tables.compaction.small_files import TARGET_BYTES, Compaction, merge_limit
from headrace.pipeline.tables.compaction.table_lock import REMOTE, TableBusy, compactor_lock, exchange_lock, work_folder
from headrace.pipeline.tables.parquet.run_index import (
    INDEX,
    MERGED_KEY,
    MergedRun,
    is_merged_file,
    is_run_file,
    merged_name,
    read_index,
    write_index,
)
from headrace.pipeline.tables.parquet.schema import SCHEMAS, TableSchemas
from headrace.pipeline.tables.writers import WRITERS

KEEP_HOURS: Final = 1
"""How long a replaced folder stays, unless a vacuum says otherwise."""

Exclusion = Callable[[float], AbstractContextManager[bool]]
"""Keeps the readers of this process out while its block lasts; gives False if they have not ended within this number of seconds."""

T = TypeVar("T")

_LOCK_SECONDS: Final = 5.0
_RUNS_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 0.1
"""The time that a reader gets to look at the files of a listing, beside that for each file. An exchange waits for it."""
_QUIET_SECONDS_PER_FILE: Final = 0.0005
_MAX_LISTING_WAIT_SECONDS: Final = 2.0
"""How long an exchange waits for the end of listings. The writers of the table wait meanwhile."""
_GROUP_ROWS: Final = 1_048_576
_GROUP_BYTES: Final = 64 * 1024 * 1024
_MAX_PENDING: Final = 1024


class ParquetCompaction:
    """Compacts one Parquet table in the folder `tables`. It ends early once `stop` is set, and changes nothing then."""

    def __init__(self, tables: Path, table: str, stop: threading.Event, exclude: Exclusion | None = None) -> None:
        self._tables = tables
        self._table = table
        self._folder = tables / table
        self._work = work_folder(tables, table)
        self._next = self._work / "next"
        self._stop = stop
        self._exclude = exclude or _no_exclusion

    def run(self, at_least: int | None = None) -> Compaction | None:
        """Merge the small files if there are `at_least` of them, or all files below the target size if None.

        Return None if there are fewer, or if it is stopped.

        Raises:
            TableBusy: Another process compacts the table, or runs or writers used it for too long.
            CompactionUnsupported: The table cannot be compacted where it is.
            PipelineError: A file cannot be read.
        """
        if self._folder.is_symlink() or not is_local(self._folder):
            raise CompactionUnsupported(f"The folder {self._folder} is a symbolic link or on a file system that other hosts can write.")
        with compactor_lock(self._tables, self._table):
            self._check_writers()
            self._retire()  # what a killed compaction left
            sizes = self._sizes()
            limit = TARGET_BYTES if at_least is None else merge_limit(list(sizes.values()))
            small = [name for name, size in sizes.items() if size < limit]
            groups = [group for group in _groups(small, sizes) if len(group) > 1]
            if not groups or len(small) < (at_least or 0):
                return None
            try:
                merged = self._merge(groups)
                result = None if merged is None else self._replace(merged)
            except TableBusy:
                shutil.rmtree(self._next)
                raise
            except BaseException:
                self._retire()  # it may be the old folder
                raise
            if result is None:
                shutil.rmtree(self._next)
            else:
                self._retire()
            return result

    def vacuum(self, keep_hours: int | None = None, *, dry_run: bool = False) -> Sequence[str]:
        """Remove the folders that compactions replaced more than `keep_hours` ago, by default one hour; return them."""
        limit = time.time_ns() - (KEEP_HOURS if keep_hours is None else keep_hours) * 3_600_000_000_000
        folders = [path for path in (self._work / "replaced").glob("*") if int(path.name) <= limit]
        for folder in [] if dry_run else folders:
            shutil.rmtree(folder, ignore_errors=True)  # the rest is removed next time
        return [str(path.relative_to(self._tables)) for path in folders]

    def _check_writers(self) -> None:
        """Refuse a table that others have written. Only the holder of the lock lists the folder: listings delay its exchange."""
        if (self._folder / REMOTE).exists():
            raise CompactionUnsupported(f"Another host has written the table {self._table!r} through a network.")
        foreign = [entry.name for entry in os.scandir(self._folder) if entry.is_dir() and entry.name not in {SCHEMAS, WRITERS, INDEX}]
        if foreign:
            raise CompactionUnsupported(f"The table {self._table!r} has a folder {foreign[0]!r} of another program.")

    def _sizes(self) -> dict[str, int]:
        """Return the sizes of the files that runs and compactions wrote, by name."""
        entries = sorted(os.scandir(self._folder), key=lambda entry: entry.name)
        return {entry.name: entry.stat().st_size for entry in entries if is_run_file(entry.name) or is_merged_file(entry.name)}

    def _merge(self, groups: Sequence[Sequence[str]]) -> dict[str, Sequence[str]] | None:
        """Write a file into the new folder for each group of files; return the names of its files by its name, or None if stopped."""
        index = self._next / INDEX
        index.mkdir(parents=True)
        schema = TableSchemas(self._tables).read(self._table).schema  # that of all files listed before
        merged: dict[str, Sequence[str]] = {}
        for names in groups:
            target = merged_name(names)
            runs: list[MergedRun] = []
            for name in names:
                if self._stop.is_set():
                    return None
                runs += self._runs(name)
            if not self._write(self._next / target, names, schema.with_metadata({MERGED_KEY: str(len(runs))})):
                return None
            write_index(index / target, runs)
            sync(index / target)
            merged[target] = names
        return merged

    def _runs(self, name: str) -> Sequence[MergedRun]:
        if is_merged_file(name):
            return read_index(self._folder, name)
        path = self._folder / name
        footer = _read(path, pq.read_metadata)
        run = (footer.metadata or {}).get(RUN_KEY.encode(), b"").decode()
        return [MergedRun(name, run, footer.num_rows, path.stat().st_mtime)]

    def _write(self, path: Path, names: Sequence[str], schema: pa.Schema) -> bool:
        """Write the rows of these files to a new one, durably. Return False if stopped."""
        with pq.ParquetWriter(path, schema) as writer:
            for group in _row_groups(self._parts(names, schema.remove_metadata())):
                if self._stop.is_set():
                    return False
                writer.write_table(group.replace_schema_metadata(schema.metadata))
        sync(path)
        return True

    def _parts(self, names: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of these files with the columns of the table, until stopped."""
        for name in names:
            with _read(self._folder / name, pq.ParquetFile) as file:
                for number in range(file.num_row_groups):
                    if self._stop.is_set():
                        return
                    yield conformed(file.read_row_group(number, use_threads=False).replace_schema_metadata(None), schema, self._table)

    def _replace(self, merged: dict[str, Sequence[str]]) -> Compaction | None:
        """Exchange the table's folder and the new one, which has the merged files. Return None if stopped. Raises `TableBusy`."""
        with self._exclude(_RUNS_SECONDS) as is_unread, exchange_lock(self._tables, self._table, _LOCK_SECONDS if is_unread else 0) as held:
            if self._stop.is_set():
                return None
            if not is_unread or not held:
                users = "runs were executed" if not is_unread else "it was written"
                raise TableBusy(f"The table {self._table!r} was not compacted: {users} all the time.", hint="It is unchanged. Try again.")
            replaced = {name for names in merged.values() for name in names}
            before = {entry.name for entry in os.scandir(self._folder) if entry.is_file()}
            if not replaced <= before:
                raise TableBusy(f"The table {self._table!r} was not compacted: a file was removed.", hint="Try again.")
            self._link(before - replaced)
            for name in (SCHEMAS, WRITERS, INDEX):
                (self._next / name).mkdir(exist_ok=True)
                if (self._folder / name).is_dir():
                    names = {entry.name for entry in os.scandir(self._folder / name)} - replaced
                    self._link({f"{name}/{each}" for each in names})
                sync_folder(self._next / name)
            _copy_owner(self._folder, self._next)
            sync_folder(self._next)
            with ListingWatch(self._folder) as listings:
                self._wait_for_listings(listings, len(before))
                exchange(self._folder, self._next)
            sync_folder(self._tables)
            late = {entry.name for entry in os.scandir(self._next) if entry.is_file()} - before
            for name in late:  # other programs do not know the lock
                os.link(self._next / name, self._folder / name)
        return Compaction(_count(before), _count((before - replaced) | merged.keys()))

    def _wait_for_listings(self, listings: ListingWatch, files: int) -> None:
        """Wait until readers of the folder have looked at the files that they have listed. Raises `TableBusy`."""
        seconds = _QUIET_SECONDS + _QUIET_SECONDS_PER_FILE * files
        deadline = time.monotonic() + _MAX_LISTING_WAIT_SECONDS
        while not listings.is_quiet(seconds):
            if time.monotonic() > deadline:
                raise TableBusy(
                    f"The table {self._table!r} was not compacted: its folder was listed all the time.",
                    hint=f"It is unchanged. Read it with pauses of {seconds:.1f} s and more, or keep it as a Delta table.",
                )

    def _link(self, names: set[str]) -> None:
        for name in names:
            os.link(self._folder / name, self._next / name, follow_symlinks=False)

    def _retire(self) -> None:
        """Put the folder that the table no longer has, or did not get, to the replaced ones."""
        if self._next.exists():
            replaced = self._work / "replaced"
            replaced.mkdir(exist_ok=True)
            self._next.rename(replaced / f"{time.time_ns()}")


def _no_exclusion(seconds: float) -> AbstractContextManager[bool]:
    del seconds
    return nullcontext(True)


def _groups(names: Sequence[str], sizes: dict[str, int]) -> list[list[str]]:
    """Return the files of each merged file, which has the target size or a little more."""
    groups: list[list[str]] = [[]]
    total = 0
    for name in names:
        if total >= TARGET_BYTES:
            groups.append([])
            total = 0
        groups[-1].append(name)
        total += sizes[name]
    return groups


def _row_groups(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the parts, joined to tables that are large enough for a row group."""
    pending: list[pa.Table] = []
    rows = size = 0
    for part in parts:
        pending.append(part)
        rows += part.num_rows
        size += part.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.concat_tables(pending)
            pending, rows, size = [], 0, 0
        elif len(pending) >= _MAX_PENDING:
            pending = [pa.concat_tables(pending).combine_chunks()]  # small tables take more memory than their rows
    if pending:
        yield pa.concat_tables(pending)


def _copy_owner(source: Path, target: Path) -> None:
    """Give the new folder the owner, the permissions and the access list of the old one."""
    status, own = source.stat(), target.stat()
    if (status.st_uid, status.st_gid) != (own.st_uid, own.st_gid):
        os.chown(target, status.st_uid, status.st_gid)
    shutil.copystat(source, target)


def _read(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except (OSError, pa.ArrowException) as error:
        raise PipelineError(f"The file {path} cannot be read: {error}", hint="Restore it from a backup of the table.") from error


def _count(names: set[str]) -> int:
    return sum(name.endswith(".parquet") for name in names)
