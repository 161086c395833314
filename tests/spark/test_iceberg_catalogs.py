"""Iceberg tables in a REST catalog: lost and repeated answers, a server that is away, and the commands. The sink contract has the rest."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from structlog.testing import capture_logs
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import PipelineError, TablesRefused, TablesUnavailable
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.tables.iceberg import catalog
from headrace.pipeline.tables.iceberg.catalog import IcebergTables
from headrace.pipeline.tables.iceberg.history import changes_of
from headrace.pipeline.tables.iceberg.maintenance import lost_files
from headrace.pipeline.tables.iceberg.sink import IcebergSink
from headrace.pipeline.tables.maintenance import compact, summarize, vacuum
from headrace.project import load_project
from support.pipelines.kit import KEY, Api, leg, until
from support.pipelines.run import running
from support.processes.iceberg_rest import PREFIX, IcebergRest, rename_table, rest_catalog, shared
from support.processes.proxy import HOST, Proxy

pytestmark = [pytest.mark.spark, pytest.mark.brokers, pytest.mark.xdist_group("spark-tables")]

ORIGIN = Origin("log", "shop", "first")
FIRST, NEXT = (RunKey("legs", "legs", batch) for batch in range(2))

PROJECT = """
from headrace import Directory, Project
from pyspark.sql import functions as F

project = Project("flights")
project.watch("legs.a", Directory("feed"))

@project.pipeline(on="legs.*", table="numbers", format="iceberg", payload="n long")
def numbers(legs):
    return legs.select("payload.n")

@project.pipeline(on="legs.*", table="sums", format="iceberg", key="k", columns="k string, n long", payload="k string, n long", attempts=1)
def sums(legs, rows):
    return legs.select("payload.k", "payload.n").unionByName(rows).groupBy("k").agg(F.sum("n").alias("n"))
"""


class Relay:
    """A REST server that passes requests on to the shared catalog.

    `repeats`: it sends each commit twice, as a client or a gateway does that does not receive the answer, and returns the last answer.
    `status`: it answers requests itself, with this status.
    """

    def __init__(self, *, repeats: bool = False, status: int | None = None) -> None:
        target = shared().address

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                is_commit = self.command == "POST" and self.path.endswith("/tables/legs")
                url, headers = f"http://{target}{self.path}", {"Content-Type": "application/json"}
                code, content = status or 0, b'{"error": {"message": "no", "type": "Error", "code": 0}}'
                for _ in range(0 if status else 2 if repeats and is_commit else 1):
                    answer = httpx.request(self.command, url, content=body, headers=headers, trust_env=False, verify=False)
                    code, content = answer.status_code, answer.content
                self.send_response(code)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer((HOST, 0), Handler)
        self.address = f"{HOST}:{self.server.server_port}"

    def __enter__(self) -> Relay:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy(int(shared().address.rpartition(":")[2]))
    yield proxy
    proxy.close()


def table_of(tables: Path, name: str = "legs") -> Table:
    table = IcebergTables(tables).open(name)
    assert table is not None
    return table


def appended(spark: SparkSession) -> Callable[[IcebergSink, RunKey], int]:
    return lambda sink, run: sink.store(run, Attempt("a"), spark.range(2), 2)


def replaced(spark: SparkSession) -> Callable[[IcebergSink, RunKey], int]:
    keys = pa.table({"id": pa.array([0, 1], pa.int64())})
    return lambda sink, run: sink.replace(run, Attempt("a"), keys, keys.schema, lambda _: spark.range(2))


BOTH = pytest.mark.parametrize(("write", "rows"), [(appended, 4), (replaced, 2)], ids=["append", "replace"])
Write = Callable[[SparkSession], Callable[[IcebergSink, RunKey], int]]


def check_stored_once(tables: Path, rows: int) -> None:
    """Check that the table has both runs once, with their files."""
    table = table_of(tables)
    assert [change.run.batch if change.run else None for change in changes_of(table)] == [0, 1]
    assert list(lost_files(table)) == []
    assert table.scan().to_arrow().num_rows == rows
    assert IcebergSink(tables, ORIGIN).stored(NEXT, "a") == StoredRun(1, 2)


class Died(BaseException):
    """The driver was killed."""


@pytest.mark.parametrize("moment", ["before", "after"])
@BOTH
def test_a_run_of_a_driver_killed_at_its_commit_is_stored_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write, rows: int, moment: str
) -> None:
    commit = RestCatalog.commit_table

    def dying(*arguments: Any) -> None:
        if moment == "after":
            commit(*arguments)
        raise Died

    with rest_catalog():
        write(spark)(IcebergSink(tmp_path, ORIGIN), FIRST)
        with monkeypatch.context() as patched:
            patched.setattr(RestCatalog, "commit_table", dying)
            with pytest.raises(Died):
                write(spark)(IcebergSink(tmp_path, ORIGIN), NEXT)
        second = IcebergSink(tmp_path, ORIGIN)
        assert second.stored(NEXT, "a") == (StoredRun(1, 2) if moment == "after" else None)
        assert write(spark)(second, NEXT) == 2
        check_stored_once(tmp_path, rows)


def test_a_keyed_run_is_computed_again_after_a_conflict(spark: SparkSession, tmp_path: Path) -> None:
    computed: list[list[int]] = []

    def compute(rows: pa.Table) -> DataFrame:
        computed.append(sorted(rows.column("id").to_pylist()))
        if len(computed) == 1:
            IcebergSink(tmp_path, ORIGIN).shut_out([NEXT])
        return spark.range(2)

    keys = pa.table({"id": pa.array([0, 1], pa.int64())})
    with rest_catalog():
        replaced(spark)(IcebergSink(tmp_path, ORIGIN), FIRST)
        assert IcebergSink(tmp_path, ORIGIN).replace(NEXT, Attempt("a"), keys, keys.schema, compute) == 2
        check_stored_once(tmp_path, 2)
    assert computed == [[0, 1], [0, 1]]


@BOTH
def test_a_commit_whose_answer_is_lost_is_stored_once(spark: SparkSession, tmp_path: Path, proxy: Proxy, write: Write, rows: int) -> None:
    with rest_catalog(proxy.address) as namespace:
        write(spark)(IcebergSink(tmp_path, ORIGIN), FIRST)

        def is_committed() -> bool:
            url = f"http://{shared().address}/v1/namespaces/{namespace}/tables/legs"
            return len(httpx.get(url, trust_env=False, verify=False).json()["metadata"]["snapshots"]) == 2

        sink = IcebergSink(tmp_path, ORIGIN, fence=lambda: proxy.silence("to_client"))
        with ThreadPoolExecutor(1) as pool:
            storing = pool.submit(write(spark), sink, NEXT)
            until(is_committed, "the server has the commit", lambda: not storing.done())
            proxy.reset()
            proxy.speak()
            assert storing.result() == 2
        check_stored_once(tmp_path, rows)


@BOTH
def test_a_commit_that_is_sent_twice_is_stored_once(spark: SparkSession, tmp_path: Path, write: Write, rows: int) -> None:
    """The answer is that of the second one, a conflict with the first. The files of the first one stay."""
    with Relay(repeats=True) as relay, rest_catalog(relay.address):
        for run in (FIRST, NEXT):
            assert write(spark)(IcebergSink(tmp_path, ORIGIN), run) == 2
        check_stored_once(tmp_path, rows)
        if write is appended:
            IcebergSink(tmp_path, ORIGIN).shut_out([NEXT])
            assert compact(tmp_path, "legs").files_after == 1
            check_stored_once(tmp_path, rows)


@BOTH
def test_a_server_that_dies_before_a_commit_leaves_the_run_open(spark: SparkSession, tmp_path: Path, write: Write, rows: int) -> None:
    shared()  # where it is not installed, the test is skipped
    server = IcebergRest()
    try:
        with rest_catalog(server.address):
            write(spark)(IcebergSink(tmp_path, ORIGIN), FIRST)
            sink = IcebergSink(tmp_path, ORIGIN, fence=server.kill)
            with pytest.raises(TablesUnavailable, match="The rows were not stored in the Iceberg table 'legs': ") as caught:
                write(spark)(sink, NEXT)
            assert "Runs stay open" in (caught.value.hint or "")
            for use in (lambda: sink.stored(NEXT, "a"), lambda: summarize(tmp_path), lambda: sink.shut_out([NEXT])):
                with pytest.raises(TablesUnavailable, match="Connection refused"):
                    use()
            server.start()
            second = IcebergSink(tmp_path, ORIGIN)
            assert second.stored(NEXT, "a") is None
            assert write(spark)(second, NEXT) == 2
            check_stored_once(tmp_path, rows)
    finally:
        server.close()


def test_a_server_that_does_not_answer_is_unavailable(
    spark: SparkSession, tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "ANSWER_SECONDS", 1)
    with rest_catalog(proxy.address):
        sink = IcebergSink(tmp_path, ORIGIN)
        appended(spark)(sink, FIRST)
        proxy.silence()
        for use in (lambda: sink.stored(NEXT, "a"), lambda: IcebergSink(tmp_path, ORIGIN)):
            with pytest.raises(TablesUnavailable, match="timed out"):
                use()
        proxy.speak()
        assert sink.stored(FIRST, "a") == StoredRun(1, 2)


def test_the_request_of_a_token_ends_as_others_do(
    spark: SparkSession, tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "ANSWER_SECONDS", 1)
    with rest_catalog():
        monkeypatch.setenv(f"{PREFIX}CREDENTIAL", "headrace:secret")
        monkeypatch.setenv(f"{PREFIX}OAUTH2_SERVER_URI", f"http://{proxy.address}/v1/oauth/tokens")
        proxy.silence()
        with pytest.raises(TablesUnavailable, match="timed out"):
            IcebergSink(tmp_path, ORIGIN)
        proxy.speak()
        assert appended(spark)(IcebergSink(tmp_path, ORIGIN), FIRST) == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, TablesRefused), (403, TablesRefused), (429, TablesUnavailable), (500, TablesUnavailable), (503, TablesUnavailable)],
)
def test_the_answers_of_a_server_say_whether_to_wait(tmp_path: Path, status: int, kind: type[PipelineError]) -> None:
    with Relay(status=status) as relay, rest_catalog(relay.address), pytest.raises(kind, match="of Iceberg tables was not opened"):
        IcebergTables(tmp_path)


def test_a_new_folder_of_tables_lists_the_tables_that_are_written(spark: SparkSession, tmp_path: Path) -> None:
    with rest_catalog():
        appended(spark)(IcebergSink(tmp_path / "old", ORIGIN), FIRST)
        new = IcebergSink(tmp_path / "new", ORIGIN)
        assert new.stored(FIRST, "a") == StoredRun(1, 2)
        assert appended(spark)(new, NEXT) == 2
        assert [(each.name, each.rows) for each in summarize(tmp_path / "new")] == [("legs", 4)]
        with rest_catalog():  # another namespace
            assert IcebergSink(tmp_path / "new", ORIGIN).stored(FIRST, "a") is None


def test_a_vacuum_spares_the_files_of_a_renamed_table(spark: SparkSession, tmp_path: Path) -> None:
    with rest_catalog():
        appended(spark)(IcebergSink(tmp_path, ORIGIN), FIRST)
        rename_table("legs", "old")
        assert IcebergSink(tmp_path, ORIGIN).stored(FIRST, "a") is None
        appended(spark)(IcebergSink(tmp_path, ORIGIN), NEXT)
        assert table_of(tmp_path).location() == table_of(tmp_path, "old").location(), "the test checks what the server does not do"
        with pytest.raises(PipelineError, match="also has files of another table") as caught:
            vacuum(tmp_path, "legs", 0, dry_run=False)
        assert "another location" in (caught.value.hint or "")
        for name in ("legs", "old"):
            assert list(lost_files(table_of(tmp_path, name))) == []


def output(*arguments: str) -> Any:
    """Return what a command prints as JSON."""
    ran = CliRunner().invoke(app, [*arguments, "--json"])
    assert ran.exit_code == 0, (ran.output, ran.exception)
    return json.loads(ran.stdout)


def test_runs_wait_for_a_catalog_that_is_away_and_the_commands_show_them(
    api: Api, home: Path, spark: SparkSession, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog that is away is no failed attempt: the keyed pipeline has one attempt, and no run becomes a dead letter."""
    (home / "project.py").write_text(PROJECT)
    monkeypatch.chdir(home)
    for name, value in {"API_URL": api.url, "KEY": KEY, "HOME": str(home), "PROJECT": str(home / "project.py")}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    trigger = api.triggers("legs.a")["legs.a"]

    def feed(first: int) -> None:
        api.feed([leg(f"{n}", trigger, k=f"{n % 2}", n=n) for n in range(first, first + 10)])

    with rest_catalog(proxy.address), capture_logs() as logs:
        with running(load_project(home / "project.py"), api.options(home), spark) as run:
            feed(0)
            run.until_handled(api, 10)
            proxy.refuse()
            feed(10)
            until(lambda: any(entry["event"] == "tables unavailable, trying again" for entry in logs), "the wait is reported", run.alive)
            proxy.calm()
            run.until_handled(api, 20)
        assert not [entry for entry in logs if entry["event"] in {"pipeline failed", "run given up"}]

        tables = home / "tables"
        assert sorted(table_of(tables, "numbers").scan().to_arrow().column("n").to_pylist()) == list(range(20))
        sums = {"0": sum(range(0, 20, 2)), "1": sum(range(1, 20, 2))}
        assert {row["k"]: row["n"] for row in table_of(tables, "sums").scan().to_arrow().to_pylist()} == sums
        listed = {each["name"]: (each["format"], each["rows"]) for each in output("tables", "list", "--tables", "tables")["tables"]}
        assert listed == {"numbers": ("iceberg", 20), "sums": ("iceberg", 2)}
        changes = output("tables", "history", "numbers", "--tables", "tables")["changes"]
        assert sum(change["rows"] for change in changes) == 20
        assert output("tables", "compact", "numbers", "--tables", "tables")["files_after"] == 1
        assert output("tables", "vacuum", "numbers", "--keep-hours", "1", "--tables", "tables")["files"] == []
        assert sum(file.endswith(".parquet") for file in vacuum(tables, "numbers", 0, dry_run=False).files) > 1
        assert len(list(table_of(tables, "numbers").scan().plan_files())) == 1
        assert output("audit", "--tables", "tables")["problems"] == []
