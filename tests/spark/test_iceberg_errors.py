"""Iceberg tables whose catalog or files cannot be used: each error says why, and what to do."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from structlog.testing import capture_logs

from headrace.errors import PipelineError, TablesUnavailable
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.tables.contents import read_table
from headrace.pipeline.tables.iceberg import catalog, errors
from headrace.pipeline.tables.iceberg.catalog import IcebergTables
from headrace.pipeline.tables.iceberg.sink import IcebergSink
from headrace.pipeline.tables.maintenance import compact, summarize, vacuum
from headrace.project import Project
from support.pipelines.kit import Api, leg, until
from support.pipelines.run import running, tables_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-tables")]

ORIGIN = Origin("log", "shop", "first")
RUN = RunKey("legs", "legs", 0)
NEXT = RunKey("legs", "legs", 1)
HOLDER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute(f"BEGIN {sys.argv[2]}")
print("locked", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Path:
    IcebergSink(tmp_path, ORIGIN).store(RUN, Attempt("a"), spark.range(3), 3)
    return tmp_path


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (catalog, errors):
        monkeypatch.setattr(module, "LOCK_SECONDS", 1)


@contextmanager
def locked(tables: Path, kind: str) -> Iterator[None]:
    """Hold the lock of the catalog in another process."""
    command = [sys.executable, "-c", HOLDER, str(tables / ".iceberg" / "catalog.db"), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        try:
            yield
        finally:
            holder.communicate("\n")


@pytest.mark.usefixtures("short_wait")
def test_a_catalog_that_another_process_locks_is_waited_for_and_reported(spark: SparkSession, tables: Path) -> None:
    begun = time.monotonic()
    with locked(tables, "EXCLUSIVE"), pytest.raises(TablesUnavailable, match="another process has locked the catalog for 1 s") as caught:
        IcebergSink(tables, ORIGIN)
    assert 1 <= time.monotonic() - begun < 10
    assert "fuser" in (caught.value.hint or "")
    sink = IcebergSink(tables, ORIGIN)
    assert sink.stored(NEXT, "b") is None
    with locked(tables, "IMMEDIATE"):  # a paused commit: the catalog can be read
        with pytest.raises(TablesUnavailable, match="The rows were not stored in the Iceberg table 'legs': another process has locked"):
            sink.store(NEXT, Attempt("b"), spark.range(2), 2)
        with pytest.raises(
            TablesUnavailable, match="Older drivers were not shut out of the Iceberg table 'legs': another process has locked"
        ):
            sink.shut_out([NEXT])
    assert sink.store(NEXT, Attempt("b"), spark.range(2), 2) == 2
    assert [each.rows for each in summarize(tables)] == [5]


@pytest.mark.usefixtures("short_wait")
def test_a_run_stays_open_while_the_catalog_is_locked(api: Api, home: Path, spark: SparkSession) -> None:
    """It is no failed attempt: the pipeline has one, and no run becomes a dead letter."""
    trigger = api.triggers("legs.a")["legs.a"]
    project, options = Project("flights"), api.options(home)

    @project.pipeline(on="legs.*", table="numbers", format="iceberg", payload="n long", attempts=1)
    def numbers(legs: DataFrame) -> DataFrame:
        return legs.select("payload.n")

    with capture_logs() as logs, running(project, options, spark) as run:
        api.feed([leg("0", trigger, n=0)])
        run.until_handled(api, 1)
        with locked(tables_of(options), "IMMEDIATE"):
            api.feed([leg("1", trigger, n=1)])
            until(lambda: any(entry["event"] == "tables unavailable, trying again" for entry in logs), "the lock is reported", run.alive)
        run.until_handled(api, 2)
    assert not [entry for entry in logs if entry["event"] in {"pipeline failed", "run given up"}]
    table = IcebergTables(tables_of(options)).open("numbers")
    assert table is not None
    assert sorted(table.scan().to_arrow().column("n").to_pylist()) == [0, 1]


def test_a_lock_that_ends_in_time_is_waited_for(spark: SparkSession, tables: Path) -> None:
    sink = IcebergSink(tables, ORIGIN)
    with ThreadPoolExecutor(1) as pool:
        with locked(tables, "IMMEDIATE"):
            storing = pool.submit(sink.store, NEXT, Attempt("b"), spark.range(2), 2)
            with pytest.raises(TimeoutError):
                storing.result(timeout=7)  # longer than the 5 s of sqlite3's default
        assert storing.result() == 2
    assert sink.stored(NEXT, "b") == StoredRun(1, 2)


def of_no_database(file: Path) -> None:
    file.write_bytes(b"no database" * 1_000)


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def of_another_version(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("ALTER TABLE iceberg_tables RENAME COLUMN metadata_location TO location")


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("damage", "reason", "hint"),
    [
        (of_no_database, "file is not a database", "Restore it from a backup"),
        (cut_off, "malformed", "Restore it from a backup"),
        (empty, "no such table: iceberg_tables", "Another program or version wrote it"),
        (of_another_version, "no such column: metadata_location", "Another program or version wrote it"),
        (a_folder, "unable to open database file", "the right to read and write"),
    ],
)
def test_a_catalog_that_cannot_be_used_is_reported(tables: Path, damage: Callable[[Path], None], reason: str, hint: str) -> None:
    file = tables / ".iceberg" / "catalog.db"
    damage(file)
    content = file.read_bytes() if file.is_file() else b""
    for use in (lambda: IcebergSink(tables, ORIGIN), lambda: summarize(tables), lambda: compact(tables, "legs")):
        with pytest.raises(
            PipelineError, match=f"catalog.db of Iceberg tables was not opened: the catalog cannot be used: .*{reason}"
        ) as caught:
            use()
        assert hint in (caught.value.hint or "")
    assert not file.is_file() or file.read_bytes() == content


def test_a_lost_catalog_is_reported(tables: Path) -> None:
    (tables / ".iceberg" / "catalog.db").unlink()
    with pytest.raises(PipelineError, match=r"holds an Iceberg table that the catalog .* does not have") as caught:
        IcebergSink(tables, ORIGIN).stored(RUN, "a")
    assert "register_table" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "The metadata of the Iceberg table 'legs' is not where the catalog says"), ("{nonsense", "its metadata is damaged")],
    ids=["missing", "damaged"],
)
def test_metadata_that_cannot_be_read_is_reported(tables: Path, content: str | None, reason: str) -> None:
    for path in (tables / "legs" / "metadata").glob("*.metadata.json"):
        path.unlink() if content is None else path.write_text(content)
    with pytest.raises(PipelineError, match=reason) as caught:
        IcebergSink(tables, ORIGIN).stored(RUN, "a")
    assert "from a backup" in (caught.value.hint or "")
    assert re.search(reason, read_table(tables / "legs", lambda *_: None).unreadable[0])


@pytest.mark.parametrize("pattern", ["metadata/*-m0.avro", "data/*.parquet"])
def test_a_missing_file_of_a_table_is_reported(spark: SparkSession, tables: Path, pattern: str) -> None:
    for path in (tables / "legs").glob(pattern):
        path.unlink()
    keys, sink = pa.table({"id": pa.array([1], pa.int64())}), IcebergSink(tables, ORIGIN)
    with pytest.raises(PipelineError, match="The Iceberg table 'legs' was not read: ") as caught:
        sink.replace(NEXT, Attempt("b"), keys, keys.schema, lambda _: spark.range(1, 2))
    assert "A file is missing" in (caught.value.hint or "")
    if pattern.startswith("metadata"):
        for use in (lambda: summarize(tables), lambda: vacuum(tables, "legs", 0, dry_run=True)):
            with pytest.raises(PipelineError, match=r"No such file|was not read"):
                use()


@pytest.mark.parametrize(
    ("uri", "reason"),
    [("http://127.0.0.1:9/", "Connection refused"), ("nonsense://x", "Could not infer the catalog type from the uri")],
)
def test_a_configured_catalog_that_cannot_be_used_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, reason: str
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__HEADRACE__URI", uri)
    with pytest.raises(PipelineError, match=f"The catalog headrace of Iceberg tables was not opened: .*{reason}"):
        IcebergTables(tmp_path)
