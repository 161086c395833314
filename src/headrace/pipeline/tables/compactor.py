"""The thread of a driver that compacts its tables while runs go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import structlog

from headrace.errors import PipelineError
from headrace.pipeline.tables.compaction.file_system import CompactionUnsupported
from headrace.pipeline.tables.compaction.small_files import MIN_SMALL_FILES
from headrace.pipeline.tables.compaction.table_lock import TableBusy
from headrace.pipeline.tables.format_compaction import open_compaction
from headrace.pipeline.tables.parquet.compaction import Exclusion
from headrace.pipeline_declaration import TableFormat

CHECK_RUNS: Final = 32
"""Runs between two counts of the small files of the tables."""
CHECK_SECONDS: Final = 600.0
"""Seconds between two counts, if there are fewer runs, and after an error."""
VACUUM_SECONDS: Final = 3600.0
"""Seconds between two removals of the files that old versions of a table have."""
_JOIN_SECONDS: Final = 5.0


class TableCompactor:
    """Compacts the tables with many small files, and removes replaced files after their time.

    At the end, a compaction of a Parquet table stops without an effect. Another one is left alone: it commits or it does not.
    """

    def __init__(self, tables: Path, formats: Mapping[str, TableFormat], exclude: Exclusion) -> None:
        self._tables = tables
        self._formats = dict(formats)
        self._exclude = exclude
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._runs = CHECK_RUNS  # the first check is at once: an earlier driver may have been killed
        self._pause_until: dict[str, float] = {}  # by table, after an error
        self._vacuumed: dict[str, float] = {}
        self._thread = threading.Thread(target=self._work, name="table compactor", daemon=True)
        self._log = structlog.get_logger(__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(_JOIN_SECONDS)

    def runs_ended(self, runs: int) -> None:
        """Count runs that have ended."""
        with self._changed:
            self._runs += runs
            self._changed.notify_all()

    def _work(self) -> None:
        while not self._stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._stop.is_set() or self._runs >= CHECK_RUNS, CHECK_SECONDS)
                self._runs = 0
            for table, format in list(self._formats.items()):
                if not self._stop.is_set() and (self._tables / table).exists() and self._pause_until.get(table, 0.0) <= time.monotonic():
                    self._check(table, format)

    def _check(self, table: str, format: TableFormat) -> None:
        """Compact a table if it has too many small files. An error is logged: the table is complete as it is."""
        began = time.monotonic()
        try:
            compaction = open_compaction(self._tables, table, format, stop=self._stop, exclude=self._exclude)
            result = compaction.run(MIN_SMALL_FILES)
            if self._vacuumed.get(table, -VACUUM_SECONDS) + VACUUM_SECONDS <= time.monotonic():
                compaction.vacuum()
                self._vacuumed[table] = time.monotonic()
        except TableBusy as error:
            self._log.info("compaction postponed", table=table, reason=str(error))
        except CompactionUnsupported as error:
            self._log.warning("table is not compacted", table=table, reason=str(error))
            del self._formats[table]
        except (PipelineError, OSError, pa.ArrowException) as error:
            self._log.warning("compaction failed", table=table, error=str(error), retry_seconds=CHECK_SECONDS)
            self._pause_until[table] = time.monotonic() + CHECK_SECONDS
        else:
            if result is not None:
                seconds = round(time.monotonic() - began, 3)
                self._log.info("table compacted", table=table, files_before=result.before, files_after=result.after, seconds=seconds)
