"""The pipeline process: registers a job, runs the one streaming query of a project, and ends it well."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import structlog
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.client.pipeline import PipelineClient
from headrace.client.secrets import blocking_source
from headrace.errors import ApiError, ApiUnavailable, HeadraceError, PipelineError
from headrace.logs.structured import bind_process
from headrace.pipeline.batch import BatchRunner, Outputs, Stopping
from headrace.pipeline.bounds import BatchBounds, Begin
from headrace.pipeline.checkpoint import check_log, open_checkpoint
from headrace.pipeline.cluster import await_executors
from headrace.pipeline.courier import Courier
from headrace.pipeline.cursor import CommitListener
from headrace.pipeline.failures import JvmDied, summary
from headrace.pipeline.heart import Heart
from headrace.pipeline.log_reader import LogReader
from headrace.pipeline.log_source import FORMAT, MAX_STEP, LogSource
from headrace.pipeline.options import PipelineOptions
from headrace.pipeline.orderer import Orderer
from headrace.pipeline.ordering_file import OrderingFiles
from headrace.pipeline.payload import PayloadSchemas, schemas_folder
from headrace.pipeline.run_identity import Origin
from headrace.pipeline.scope_lock import acquire_scope, scope_lock
from headrace.pipeline.session import open_session
from headrace.pipeline.shipping import ship
from headrace.pipeline.sink import open_sinks
from headrace.pipeline.starter import Starter
from headrace.pipeline.underway import BatchUnderway
from headrace.project import Project
from headrace.triggers.secrets import SECRETS
from headrace.wire.jobs import CompleteJob, JobRegistered, RegisterJob
from headrace.wire.scope_leases import ScopeLease

__all__ = ["PipelineOptions", "run_pipeline"]

TRIGGER: Final = "0 seconds"
"""A batch begins as soon as the one before it has ended and there is something to do, for which the source waits."""
LAST_CALLS: Final = 5.0
"""Seconds within which the calls that wait for a JVM that died have ended."""
GRACE: Final = 15.0
"""Seconds that a batch has to finish after the process was asked to stop."""

_MICROS: Final = 1_000_000


def run_pipeline(project: Project, options: PipelineOptions, stop: threading.Event, spark: SparkSession | None = None) -> None:
    """Run the project's pipelines until `stop` is set: the batch at hand is finished first. An api that is away is waited for.

    A session is made, and stopped at the end, unless one is given.

    Raises:
        JavaError: No Java 17 or newer.
        PipelineError: A pipeline failed for good, Spark did, or its master cannot be reached. Nothing is lost: the batch comes again.
        ApiError: The api refuses this process.
    """
    folders = ship(pipeline.function for pipeline in project.pipelines.values())
    with PipelineClient(options.api_url, key=options.key) as client:
        SECRETS.use(blocking_source(client.get))
        job = _register(client, project.name, options.log_url, stop)
        if job is None:
            return
        bind_process(job=job.job_id)
        underway = BatchUnderway(options.scope)
        with Heart(client, job.heartbeat, stop, underway.now) as heart:
            try:
                with nullcontext(spark) if spark else _session(project.name, options, folders, stop) as session:
                    # A driver that waits for the scope has its session ready when it gets it.
                    lease = acquire_scope(client, options.scope, stop)
                    if lease is not None:
                        with scope_lock(options, stop):
                            _run(session, project, options, _Held(client, lease, heart, underway), stop)
                if heart.failure is not None:
                    raise heart.failure
            except (HeadraceError, PySparkException) as error:
                _complete(client, CompleteJob(state="failed", reason=str(error)))
                raise
            _complete(client, CompleteJob(state="succeeded"))


@contextmanager
def _session(app: str, options: PipelineOptions, folders: Sequence[Path], stop: threading.Event) -> Iterator[SparkSession]:
    """Give a session that has executors, unless `stop` was set."""
    with open_session(app, master=options.master, work=options.home / "spark", conf=options.conf, folders=folders) as session:
        await_executors(session, stop)
        yield session


class _Held(NamedTuple):
    """The scope that this process holds, and its job's client, heartbeat and batch."""

    client: PipelineClient
    lease: ScopeLease
    heart: Heart
    underway: BatchUnderway


def _run(spark: SparkSession, project: Project, options: PipelineOptions, held: _Held, stop: threading.Event) -> None:
    client = held.client
    spark.conf.set("spark.headrace.tables", str(options.tables))  # for pipelines that look at what earlier batches wrote
    query_id, begin = open_checkpoint(options.checkpoint, held.lease, lambda: beginning(client, options.begin), reset=options.reset)
    ordering = OrderingFiles(options.checkpoint / "ordering")
    check_log(client, ordering, held.lease)
    client.on_token = partial(_token_file, options)
    with Courier(client, options.scope) as courier, LogReader(client, stop.is_set, options.max_rows) as reader:
        orderer = Orderer(
            list(project.pipelines.values()),
            reader,
            ordering,
            int(options.lookback * _MICROS),
            options.scope,
            begin,
        )
        origin = Origin(held.lease.log, options.scope, query_id)
        sinks = open_sinks(project.pipelines.values(), options.tables, origin, held.heart.fence)
        payloads = PayloadSchemas(schemas_folder(options.tables, options.scope))
        outputs = Outputs(sinks, payloads, courier, Starter(client, stop), held.underway)
        runner = BatchRunner(orderer, BatchBounds(options.checkpoint, begin), options.scope, query_id, outputs, stop)
        listener = CommitListener(courier, runner.held)
        spark.streams.addListener(listener)
        try:
            query = start_query(spark, options, client.token, runner, begin)
            try:
                _watch(query, stop)
            except (OSError, Py4JError) as error:
                raise _broken_off(runner, held.underway) from error
            _wind_down(query, runner, listener)
            _check(query, runner, stop)
        finally:
            with suppress(OSError, Py4JError):  # with a JVM that died it is gone
                spark.streams.removeListener(listener)


def beginning(client: PipelineClient, asked: int | None) -> Begin:
    """Return where a new scope begins that is to handle the event `asked` first, or what comes from now on (None).

    Raises:
        PipelineError: The event is beyond the next one of the log.
    """
    known = client.news().again
    log = client.head()
    if asked is None:
        return Begin(log.head, known, known)
    if asked > log.head + 1:
        raise PipelineError(
            f"The event log ends at event {log.head}: a scope cannot begin at event {asked}.", hint="For what comes from now on: --from now"
        )
    return Begin(max(asked, log.first) - 1, 0, known)  # what is forgotten cannot be read


def start_query(spark: SparkSession, options: PipelineOptions, token: str, runner: BatchRunner, begin: Begin) -> StreamingQuery:
    """Start the one query of a project: bounds of the log -> `runner`. A new checkpoint begins at `begin`."""
    with _own_python(spark.sparkContext):
        spark.dataSource.register(LogSource)
    log = spark.readStream.format(FORMAT).options(
        api_url=options.api_url,
        token_file=str(_token_file(options, token)),
        begin=str(begin.seq),
        again=str(begin.again),
        scope=options.scope,
        max_rows=str(options.max_rows),
        tick=str(min(int(options.lookback * _MICROS) // 4, MAX_STEP)),
    )
    writer = log.load().writeStream.foreachBatch(runner).queryName(options.scope)
    return writer.option("checkpointLocation", options.checkpoint.absolute().as_uri()).trigger(processingTime=TRIGGER).start()


@contextmanager
def _own_python(context: SparkContext) -> Iterator[None]:
    """Let what is made meanwhile run with this process's Python: executors may have another, and the source runs beside this process."""
    theirs, context.pythonExec = context.pythonExec, sys.executable
    try:
        yield
    finally:
        context.pythonExec = theirs


def _watch(query: StreamingQuery, stop: threading.Event) -> None:
    """Wait until `stop` is set or the query ends by itself; OSError or Py4JError where the JVM has died."""
    while query.isActive and not stop.wait(0.2):
        pass


def _broken_off(runner: BatchRunner, underway: BatchUnderway) -> PipelineError:
    """Return the error of the batch that the end of the JVM broke off, which names its pipeline, or that of the JVM alone."""
    underway.wait_for_end(LAST_CALLS)
    return runner.failure or JvmDied()


def _wind_down(query: StreamingQuery, runner: BatchRunner, listener: CommitListener) -> None:
    """Let the batch at hand be committed, for a while, then stop the query."""
    deadline = time.monotonic() + GRACE
    while query.isActive and runner.begun != listener.last and time.monotonic() < deadline:
        time.sleep(0.02)
    query.stop()


def _check(query: StreamingQuery, runner: BatchRunner, stop: threading.Event) -> None:
    """Raise what the query failed with; being stopped is no failure."""
    error = query.exception()
    if isinstance(runner.failure, Stopping) or (error is None and runner.failure is None):
        return
    if runner.failure is not None:
        raise runner.failure
    if error is not None and not stop.is_set():
        raise PipelineError(f"The streaming query stopped: {summary(error)}", hint="See spark.log in the home folder.") from error


def _register(client: PipelineClient, project: str, log_url: str | None, stop: threading.Event) -> JobRegistered | None:
    """Register this process, waiting for the api; None when asked to stop before that."""
    job = RegisterJob(
        registration_id=os.environ.get("HEADRACE_REGISTRATION") or uuid4().hex,
        replaces=os.environ.get("HEADRACE_REPLACES"),
        kind="pipeline",
        hostname=socket.gethostname(),
        pid=os.getpid(),
        project=project,
        log_url=log_url,
    )
    log = structlog.get_logger(__name__)
    while not stop.is_set():
        try:
            return client.register(job)
        except ApiUnavailable as error:
            log.warning("waiting for the api", error=str(error))
            stop.wait(1.0)
    return None


def _complete(client: PipelineClient, end: CompleteJob) -> None:
    """Say how the job ended; an api that does not hear it will find out by itself."""
    try:
        client.complete(end)
    except ApiError as error:
        structlog.get_logger(__name__).warning("the end of the job was not reported", error=str(error))


def _token_file(options: PipelineOptions, token: str) -> Path:
    """Keep the job's token where the readers find it: options of a source can end up in logs."""
    options.state.mkdir(parents=True, exist_ok=True)
    path = options.state / "token"
    draft = path.with_name(f".token.{threading.get_ident()}")
    draft.touch(mode=0o600)
    draft.write_text(token)
    draft.replace(path)  # a reader finds the old token or the new one, never half of one
    return path.absolute()
