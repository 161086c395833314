"""Tables in a bucket of a real server: lost answers, outages, competing drivers, and what is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace.core.values.locations import TableLocation
from headrace.errors import HeadraceError, PipelineError, TablesRefused, TablesUnavailable, TypeConflict
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.table_storage.object_folder import ObjectFolder
from headrace.pipeline.tables.delta.sink import DeltaSink
from headrace.pipeline.tables.rows import MAX_DRIVER_EVENTS
from headrace.pipeline.tables.sinks import check_formats
from headrace.project import Project
from support.pipelines.bucket_tables import SERVERS, bucket_tables, delta_table, folder_of, table_location, true_folder
from support.pipelines.kit import Api, leg, until
from support.pipelines.run import no_reports, open_runs, running
from support.processes import azurite, versitygw
from support.processes.azurite import ACCOUNT
from support.processes.broker_server import connection_variable
from support.processes.proxy import Proxy
from support.processes.versitygw import VersityGateway

pytestmark = [pytest.mark.spark, pytest.mark.brokers, pytest.mark.xdist_group("spark-tables"), pytest.mark.slow]

ORIGIN = Origin("log", "flights", "first")
COLUMNS = pa.schema([("id", pa.int64())])
FEED = 120


@pytest.fixture(params=list(SERVERS))
def scheme(request: pytest.FixtureRequest) -> str:
    """Return the scheme of a server."""
    return str(request.param)


@pytest.fixture
def proxy(scheme: str) -> Iterator[Proxy]:
    """Return a proxy before the shared server of the scheme."""
    proxy = Proxy(int(SERVERS[scheme]().address.rpartition(":")[2]))
    yield proxy
    proxy.close()


def through(proxy: Proxy, scheme: str) -> str:
    """Return the value of a connection through the proxy."""
    server = SERVERS[scheme]()
    return server.connection.replace(server.address, proxy.address)


def ids(folder: ObjectFolder) -> list[int]:
    return sorted(delta_table(folder).to_pyarrow_table().column("id").to_pylist())


def store(sink: DeltaSink, spark: SparkSession, batch: int) -> int:
    return sink.store(RunKey("legs", "legs", batch), Attempt("a"), spark.range(batch, batch + 1), 1)


def replace(sink: DeltaSink, spark: SparkSession, batch: int) -> int:
    keys = pa.table({"id": [batch]})
    return sink.replace(RunKey("legs", "legs", batch), Attempt("a"), keys, COLUMNS, lambda _: spark.range(batch, batch + 1))


@pytest.mark.parametrize("write", [store, replace])
def test_a_run_whose_commit_was_not_answered_is_stored_once(
    spark: SparkSession, proxy: Proxy, scheme: str, write: Callable[[DeltaSink, SparkSession, int], int]
) -> None:
    with table_location(scheme=scheme) as location:
        direct = true_folder(location)
        write(DeltaSink(direct, ORIGIN), spark, 0)
        commit = f"legs/_delta_log/{delta_table(direct / 'legs').version() + 1:020}.json"

        def lose_the_answer() -> None:
            until(lambda: direct.read(commit) is not None, "the commit is in the bucket")
            proxy.silence("to_client")
            proxy.reset()
            proxy.calm()

        losing = threading.Thread(target=lose_the_answer)
        losing.start()
        proxy.delay(0.3)  # the answer comes this much later than the commit is in the bucket
        connections = proxy.accepted
        assert write(DeltaSink(folder_of(location, through(proxy, scheme)), ORIGIN), spark, 1) == 1
        losing.join(60)
        assert proxy.accepted > connections + 1, "the sink has looked again, after its connections were reset"
        assert ids(direct / "legs") == [0, 1]
        assert DeltaSink(direct, ORIGIN).stored(RunKey("legs", "legs", 1), "a") == StoredRun(1, 1)


def test_a_service_that_does_not_answer_is_named(spark: SparkSession, proxy: Proxy, scheme: str) -> None:
    with table_location(scheme=scheme) as location:
        sink = DeltaSink(folder_of(location, through(proxy, scheme)), ORIGIN)
        store(sink, spark, 0)
        proxy.refuse()
        for use in (lambda: store(sink, spark, 1), lambda: sink.stored(RunKey("legs", "legs", 1), "a")):
            with pytest.raises(TablesUnavailable, match=f"The tables in {location} cannot be reached: .*Error performing") as caught:
                use()
            shown = f"{caught.value} {caught.value.hint}"
            assert "testtest" not in shown
            assert azurite.KEY not in shown


@pytest.mark.parametrize(
    ("scheme", "connection", "bucket", "message", "hint"),
    [
        ("s3", "s3://test:wrong@{address}?scheme=http", None, "SignatureDoesNotMatch", "credentials of the connection"),
        ("s3", "s3://nobody:wrong@{address}?scheme=http", None, "InvalidAccessKeyId", "credentials of the connection"),
        ("s3", "s3://test:testtest@{address}?scheme=http", "no-such-bucket", "NoSuchBucket", "Headrace creates no buckets"),
        ("az", f"azure://{ACCOUNT}:d3Jvbmc%3D@{{address}}/{ACCOUNT}?scheme=http", None, "AuthorizationFailure", "credentials of the"),
        ("az", None, "no-such-container", "ContainerNotFound", "Headrace creates no containers"),
    ],
)
def test_a_wrong_connection_or_bucket_is_refused_with_a_hint(
    spark: SparkSession, scheme: str, connection: str | None, bucket: str | None, message: str, hint: str
) -> None:
    with table_location(scheme=scheme) as location:
        place = location if bucket is None else TableLocation(location.connection, location.location._replace(bucket=bucket))
        server = SERVERS[scheme]()
        folder = folder_of(place, server.connection if connection is None else connection.format(address=server.address))
        sink = DeltaSink(folder, ORIGIN)
        uses: list[Callable[[], object]] = [folder.check, folder.folders, lambda: sink.stored(RunKey("legs", "legs", 0), "a")]
        uses += [lambda: store(sink, spark, 0), lambda: replace(sink, spark, 0)]
        for use in uses:
            with pytest.raises(TablesRefused, match=message) as caught:
                use()
            assert hint in (caught.value.hint or "")


def test_a_server_that_ignores_conditions_is_refused() -> None:
    """Two drivers would both commit one version."""
    versitygw.require()
    server = VersityGateway(metadata="none")
    try:
        bucket = server.create_bucket()
        with table_location() as location:
            place = TableLocation(location.connection, location.location._replace(bucket=bucket))
            with pytest.raises(TablesRefused, match="ignores the condition If-None-Match"):
                folder_of(place, server.connection).check()
            own = true_folder(location)
            own.check()
            own.check()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("status", "code", "error", "hint"),
    [
        (503, "SlowDown", TablesUnavailable, "Is the service reachable?"),
        (500, "InternalError", TablesUnavailable, "Is the service reachable?"),
        (400, "ExpiredToken", TablesRefused, "session token has expired"),
        (403, "AccessDenied", TablesRefused, "s3:ListBucket on the bucket"),
        (501, "NotImplemented", TablesRefused, "If-None-Match"),
    ],
)
def test_an_error_of_the_service_is_named(spark: SparkSession, status: int, code: str, error: type[PipelineError], hint: str) -> None:
    with table_location() as location, answering(status, code) as address:
        folder = folder_of(location, f"s3://test:testtest@{address}?scheme=http")
        sink = DeltaSink(folder, ORIGIN)
        for use in (folder.check, folder.folders, lambda: sink.stored(RunKey("legs", "legs", 0), "a"), lambda: store(sink, spark, 0)):
            with pytest.raises(error, match=code) as caught:
                use()
            assert hint in (caught.value.hint or "")


@contextmanager
def answering(status: int, code: str) -> Iterator[str]:
    """Serve this error for each request on loopback. Yield the address."""
    body = f"<Error><Code>{code}</Code><Message>An error of the test.</Message></Error>".encode()
    with serving(lambda _: (status, body)) as address:
        yield address


@contextmanager
def serving(answer: Callable[[str], tuple[int, bytes]]) -> Iterator[str]:
    """Serve the answer to each method on loopback. Yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = answer(self.command)
            self.send_response(status)
            self.send_header("Content-Length", f"{len(body)}")
            self.send_header("ETag", '"1"')
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - names of http.server

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


@pytest.mark.parametrize("listed", [[".headrace/conditional-writes"], []])
def test_a_server_whose_listings_ignore_their_begin_is_refused(listed: list[str]) -> None:
    """Azurite did so before 3.37: a table was loaded, and its second commit failed."""
    objects = "".join(
        f"<Contents><Key>shop/tables/{key}</Key><Size>0</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>1</ETag></Contents>"
        for key in listed
    )
    page = f"<ListBucketResult>{objects}</ListBucketResult>".encode()
    with table_location() as location, serving(lambda method: (412, b"") if method == "PUT" else (200, page)) as address:
        folder = folder_of(location, f"s3://test:testtest@{address}?scheme=http")
        with pytest.raises(TablesRefused, match="the server does not begin a listing where the request says"):
            folder.check()


def test_a_large_run_passes_through_the_driver(spark: SparkSession) -> None:
    """The executors return its rows in parts."""
    count = MAX_DRIVER_EVENTS + 1
    rows = spark.range(count).select("id", sf.array(sf.col("id").cast("string")).alias("names"))
    with bucket_tables() as tables:
        sink = DeltaSink(tables, ORIGIN)
        assert sink.store(RunKey("legs", "legs", 0), Attempt("a"), rows, count) == count
        assert sink.store(RunKey("legs", "legs", 0), Attempt("a"), rows, count) == count
        stored = delta_table(tables / "legs").to_pyarrow_table().sort_by("id")
        assert stored.column("id").to_pylist() == list(range(count))
        assert stored.column("names")[count - 1].as_py() == [f"{count - 1}"]


def test_rows_of_a_type_that_only_spark_can_write_are_refused(spark: SparkSession) -> None:
    rows = spark.range(1).select(sf.expr("make_interval(1)").alias("v"))
    with bucket_tables() as tables:
        for events in (1, MAX_DRIVER_EVENTS + 1):
            with pytest.raises(TypeConflict, match="a type that only Spark can write"):
                DeltaSink(tables, ORIGIN).store(RunKey("legs", "legs", 0), Attempt("a"), rows, events)
        assert not tables.folders()


def test_a_parquet_table_is_refused() -> None:
    project = Project("flights")
    project.pipeline(on="legs.*", table="legs", format="delta")(print)
    project.pipeline(on="legs.*", table="sums", name="sums")(print)
    with table_location() as location:
        with pytest.raises(PipelineError, match="'sums' has the format Parquet, and the tables are in s3://") as caught:
            check_formats(project.pipelines.values(), location)
        assert "format='delta'" in (caught.value.hint or "")
        check_formats([project.pipelines["print"]], location)
    check_formats(project.pipelines.values(), Path())


def flights() -> Project:
    """Return a project with an append table and a keyed table."""
    project = Project("flights")

    @project.pipeline(on="legs.*", table="legs", format="delta", payload="n long, k long")
    def legs(events: DataFrame) -> DataFrame:
        return events.select("position", "payload.n")

    @project.pipeline(on="legs.*", table="counts", key="k", columns="k long, n long", payload="n long, k long")
    def counts(events: DataFrame, rows: DataFrame) -> DataFrame:
        return events.select("payload.k", sf.lit(1).alias("n")).unionByName(rows).groupBy("k").agg(sf.sum("n").cast("long").alias("n"))

    return project


def feed(trigger: int, begin: int, end: int) -> list[Any]:
    return [leg(f"{n}", trigger, n=n, k=n % 7) for n in range(begin, end)]


def assert_exact(tables: ObjectFolder, events: int) -> None:
    """Compare the tables of `flights` with the events that were fed."""
    rows = delta_table(tables / "legs").to_pyarrow_table().to_pylist()
    assert sorted(row["n"] for row in rows) == list(range(events))
    assert sorted(row["position"] for row in rows) == list(range(1, events + 1))
    counts = {row["k"]: row["n"] for row in delta_table(tables / "counts").to_pyarrow_table().to_pylist()}
    assert counts == {k: len(range(k, events, 7)) for k in range(7)}


def test_runs_whose_report_was_lost_are_stored_once(
    api: Api, home: Path, spark: SparkSession, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    with table_location(scheme=scheme) as location:
        options = api.options(home, max_rows=50, tables=location)
        with no_reports(monkeypatch), running(flights(), options, spark) as run:
            api.feed(feed(trigger, 0, FEED))
            assert "cannot be reported" in str(run.until_failed())
        with running(flights(), options, spark) as run:
            run.until_handled(api, FEED)
        tables = true_folder(location)
        assert_exact(tables, FEED)
        assert spark.conf.get("spark.headrace.tables") == tables.url
        assert list(tables.folders()) == [".headrace", "counts", "legs"]
        assert not (home / "tables").exists()


def test_a_driver_waits_for_a_service_that_is_away(api: Api, home: Path, spark: SparkSession, proxy: Proxy, scheme: str) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    with (
        table_location(through(proxy, scheme), scheme=scheme) as location,
        running(flights(), api.options(home, max_rows=50, tables=location), spark) as run,
    ):
        api.feed(feed(trigger, 0, FEED))
        run.until_handled(api, FEED)
        proxy.refuse()
        api.feed(feed(trigger, FEED, 2 * FEED))
        until(lambda: open_runs(api) > 0, "runs are open", run.alive)
        threading.Event().wait(3.0)  # longer than the retries of one request
        assert open_runs(api) > 0
        proxy.calm()
        run.until_handled(api, 2 * FEED)
        assert_exact(true_folder(location), 2 * FEED)
        assert {report.state for report in api.runs()} == {"succeeded"}


@pytest.mark.parametrize(
    ("connection", "message"),
    [("s3://test:wrong@{address}?scheme=http", "SignatureDoesNotMatch"), ("s3://?profile=shop", "has unknown settings: profile")],
)
def test_a_driver_with_a_wrong_connection_ends_with_the_reason(
    api: Api, home: Path, spark: SparkSession, connection: str, message: str
) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    with table_location() as location:
        options = api.options(home, tables=location)
        os.environ[connection_variable(location.connection)] = connection.format(address=versitygw.shared().address)
        with running(flights(), options, spark) as run:
            api.feed(feed(trigger, 0, FEED))
            failure: HeadraceError = run.until_failed()
        assert message in str(failure)
        os.environ[connection_variable(location.connection)] = versitygw.shared().connection
        with running(flights(), options, spark) as run:
            run.until_handled(api, FEED)
        assert_exact(true_folder(location), FEED)
