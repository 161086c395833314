"""The pipeline process: registers a job, holds a scope, plans its batches and executes their runs."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.client.pipeline import PipelineClient
from headrace.client.secret_source import blocking_source
from headrace.errors import ApiError, ApiUnavailable, HeadraceError, PipelineError, TablesUnavailable
from headrace.logs.setup import bind_process
from headrace.pipeline.execution.executor import RunExecutor, RunServices, StopRequested
from headrace.pipeline.execution.queues import Batch, RunQueues
from headrace.pipeline.execution.reporter import Reporter
from headrace.pipeline.execution.returned_runs import ReturnedRuns
from headrace.pipeline.execution.run_lock import RunLock
from headrace.pipeline.execution.running_runs import RunningRuns
from headrace.pipeline.heartbeat import JobHeartbeat
from headrace.pipeline.log_reader import LogReader
from headrace.pipeline.options import PipelineOptions
from headrace.pipeline.ordering.bounds import MAX_STEP, Bounds, next_bounds
from headrace.pipeline.ordering.orderer import Orderer
from headrace.pipeline.payload.frames import DataFrames
from headrace.pipeline.payload.schemas import PayloadSchemas, schemas_folder
from headrace.pipeline.runs.identity import Origin, RunKey
from headrace.pipeline.runs.run import Run, in_order
from headrace.pipeline.schemas import ORDERED_SCHEMA
from headrace.pipeline.scope_lease import acquire_scope
from headrace.pipeline.spark.cluster import await_executors
from headrace.pipeline.spark.code_shipping import ship_functions
from headrace.pipeline.spark.session import open_session
from headrace.pipeline.table_storage.object_folder import ObjectFolder
from headrace.pipeline.table_storage.tables import Tables, open_tables
from headrace.pipeline.tables.batches import TableBatches
from headrace.pipeline.tables.compactor import TableCompactor
from headrace.pipeline.tables.sink import TableSink
from headrace.pipeline.tables.sinks import open_sinks
from headrace.pipeline.task_starter import TaskStarter
from headrace.pipeline_declaration import TableFormat
from headrace.project import Project
from headrace.retry import retry_until_stopped
from headrace.triggers.secrets import SECRETS
from headrace.wire.calls.execution import SPLIT_RUN, WAIT_FOR_EVENTS
from headrace.wire.control.jobs import CompleteJob, JobRegistered, RegisterJob
from headrace.wire.pipelines.runs import BatchEnded
from headrace.wire.pipelines.scope_leases import ScopeLease

__all__ = ["PipelineOptions", "run_pipeline"]

STOP_SECONDS: Final = 15.0
"""Time limit for running runs to finish after a stop request."""

DEAD_LETTER_SECONDS: Final = 1.0
"""Interval at which a driver checks for settled or discarded dead letters that hold back events."""
_POLL_SECONDS: Final = 0.5
"""How long one request waits for new events. A stop request may take as long to be noticed."""
_BUSY_SECONDS: Final = 0.1
"""The same, if a pipeline that holds followers may have ended its run meanwhile, so that its next run can be planned."""
_MICROS: Final = 1_000_000


def run_pipeline(project: Project, options: PipelineOptions, stop: threading.Event, spark: SparkSession | None = None) -> None:
    """Run the project's pipelines until `stop` is set; running runs then finish. Wait while the API is unavailable.

    Creates a session, and stops it at the end, unless one is given. The folder `options.home` is scratch: everything
    that another driver needs is in the API and in the tables.

    Raises:
        JavaError: No Java 17 or newer.
        PipelineError: A run cannot be stored or reported, Spark's JVM died, or its master cannot be reached. The run
            stays open.
        ApiError: The API refuses this process.
    """
    folders = ship_functions(pipeline.function for pipeline in project.pipelines.values())
    with PipelineClient(options.api_url, key=options.key) as client:
        SECRETS.set_backend(blocking_source(client))
        job = _register(client, project.name, options.log_url, stop)
        if job is None:
            return
        bind_process(job=job.job_id)
        running = RunningRuns(options.scope)
        with JobHeartbeat(client, job.heartbeat, stop, running.now) as heartbeat:
            try:
                with nullcontext(spark) if spark else _session(project.name, options, folders, stop) as session:
                    # The session is ready before the scope is acquired, so that a standby driver starts quickly.
                    lease = acquire_scope(client, options.scope, options.begin, stop, partial(_warm_up, session))
                    if lease is not None:
                        _run(session, project, options, _Acquired(client, lease, heartbeat, running), stop)
                if heartbeat.failure is not None:
                    raise heartbeat.failure
            except (HeadraceError, PySparkException) as error:
                _complete(client, CompleteJob(state="failed", reason=str(error)))
                raise
            _complete(client, CompleteJob(state="succeeded"))


@contextmanager
def _session(app: str, options: PipelineOptions, folders: Sequence[Path], stop: threading.Event) -> Iterator[SparkSession]:
    """Open a session that has executors, unless `stop` was set."""
    with open_session(app, master=options.master, work=options.home / "spark", conf=options.conf, folders=folders) as session:
        await_executors(session, stop)
        yield session


def _warm_up(session: SparkSession) -> None:
    """Execute a job, because the first job of a session takes two seconds longer than the others."""
    try:
        DataFrames(session).of(ORDERED_SCHEMA.empty_table()).toArrow()
    except (OSError, Py4JError) as error:
        raise PipelineError(f"Spark stopped before it was needed: {error}", hint="See spark.log in the home folder.") from error


class _Acquired(NamedTuple):
    """The acquired scope, with its job's client, heartbeat and runs."""

    client: PipelineClient
    lease: ScopeLease
    heartbeat: JobHeartbeat
    running: RunningRuns


def _run(spark: SparkSession, project: Project, options: PipelineOptions, acquired: _Acquired, stop: threading.Event) -> None:
    client, lease = acquired.client, acquired.lease
    try:
        tables = retry_until_stopped(lambda: open_tables(options.tables), stop, "connection of the tables")
        state = retry_until_stopped(lambda: client.state(options.scope), stop, "state of the scope")
        open_runs = in_order(Run.opened(run) for run in retry_until_stopped(lambda: client.open_runs(options.scope), stop, "open runs"))
        prepare = partial(_prepare_tables, project, open_runs, tables, acquired)
        sinks = retry_until_stopped(prepare, stop, "tables", TablesUnavailable)
    except (ApiUnavailable, TablesUnavailable):
        return  # a stop was requested
    # For pipelines that read what earlier batches wrote.
    spark.conf.set("spark.headrace.tables", str(tables) if isinstance(tables, Path) else tables.url)
    with Reporter(client) as reporter, LogReader(client, stop, options.max_rows) as reader:
        run_lock = RunLock()
        services = RunServices(
            sinks,
            PayloadSchemas(schemas_folder(tables, options.scope)),
            reporter,
            TaskStarter(client, stop),
            lambda split: retry_until_stopped(lambda: client.request(SPLIT_RUN, split, scope=options.scope), stop, "split of a run"),
            acquired.running,
            run_lock,
        )
        returned = ReturnedRuns()
        execute = RunExecutor(spark, project.pipelines, lease, reader, services, returned, stop)
        orderer = Orderer(
            list(project.pipelines.values()), reader, lease, state, lookback=int(options.lookback * _MICROS), max_rows=options.max_rows
        )
        formats = {pipeline.table: pipeline.format for pipeline in project.pipelines.values() if pipeline.table is not None}
        try:
            # Not in a bucket: a killed driver would leave the lock of a compaction there.
            with TableCompactor(tables, formats, run_lock.exclusive) if isinstance(tables, Path) else nullcontext() as compactor:
                _Driver(client, orderer, execute, reporter, returned, compactor, options, stop).run(open_runs)
        except StopRequested:
            pass
        except ApiUnavailable:
            if not stop.is_set():
                raise
        except (OSError, Py4JError) as error:
            raise PipelineError(f"A run failed: {error}", hint="See spark.log in the home folder. Is a disk full?") from error


def _prepare_tables(project: Project, open_runs: Sequence[Run], tables: Tables, acquired: _Acquired) -> Mapping[TableFormat, TableSink]:
    """Return the sinks of the tables, with earlier drivers fenced and the tables compared with the database."""
    lease = acquired.lease
    origin = Origin(lease.log, lease.scope, lease.incarnation)
    pipelines = project.pipelines.values()
    if isinstance(tables, ObjectFolder):
        tables.check()
    sinks = open_sinks([*pipelines, *open_runs], tables, origin, acquired.heartbeat.fence)
    for format, sink in sinks.items():
        mine = [run for run in open_runs if run.format == format]
        sink.shut_out(RunKey(run.table, run.pipeline, run.batch, run.part) for run in mine if run.table is not None)
    TableBatches(tables, origin).check(pipelines, sinks, lease.cursor.batch)
    return sinks


class _Driver:
    """Plans the batches of one scope and queues their runs."""

    def __init__(
        self,
        client: PipelineClient,
        orderer: Orderer,
        execute: RunExecutor,
        reporter: Reporter,
        returned: ReturnedRuns,
        compactor: TableCompactor | None,
        options: PipelineOptions,
        stop: threading.Event,
    ) -> None:
        self._client = client
        self._orderer = orderer
        self._execute = execute
        self._reporter = reporter
        self._returned = returned
        self._compactor = compactor
        self._options = options
        self._stop = stop
        self._checked_at = 0.0
        self._max_tick = min(int(options.lookback * _MICROS) // 4, MAX_STEP)
        self._log = structlog.get_logger(__name__)

    def run(self, open_runs: Sequence[Run]) -> None:
        """Execute the runs that earlier drivers left open, then plan batches and execute their runs, until a stop is requested.

        Raises:
            PipelineError: As for `run_pipeline`, or StopRequested.
            ApiError: As for `run_pipeline`.
        """
        # A run that began twice without an outcome may have ended its driver or Spark's JVM. Alone, it takes no other run with it.
        suspects = deque(run for run in open_runs if run.begun > 1)
        rest = [run for run in open_runs if run.begun <= 1]
        while suspects:
            if self._stop.is_set():
                return
            suspects.extendleft(reversed(self._execute(suspects.popleft(), alone=True)))
        queues = RunQueues(self._execute, self._batch_ended)
        try:
            if rest:
                queues.put(Batch(rest[-1].batch, 0, 0, time.monotonic()), rest)
            while not self._stop.is_set():
                if self._reporter.failure is not None:
                    raise self._reporter.failure
                if queues.wait_for_room(_POLL_SECONDS):
                    self._plan(queues)
                elif queues.failure is not None:
                    break
        finally:
            queues.stop(STOP_SECONDS)
        if queues.failure is not None:
            raise queues.failure
        if self._reporter.failure is not None:
            raise self._reporter.failure

    def _plan(self, queues: RunQueues) -> None:
        """Plan the next batch, when there are new events or the scope time must advance.

        A full batch is planned while the previous one is executed. Another one waits until a pipeline is ready for it,
        and events that are stored meanwhile join it.
        """
        queues.wait_until_taken()
        bounds = self._bounds(queues)
        if bounds is not None and bounds.to - bounds.after < self._orderer.max_events and queues.wait_until_ready():
            bounds = self._bounds(queues)
        if bounds is None or self._stop.is_set():
            return
        began = time.monotonic()
        idle = self._idle(queues)
        ordered = self._orderer.order(bounds, idle, self._returned.take())
        retry_until_stopped(lambda: self._client.plan(self._options.scope, ordered.plan), self._stop, "plan of a batch")
        cursor = ordered.plan.cursor
        queues.put(Batch(cursor.batch, cursor.cursor - bounds.after, ordered.released, began), ordered.runs)

    def _idle(self, queues: RunQueues) -> set[str]:
        """Return the pipelines that hold followers and have no open run. The API has the outcomes of all their runs."""
        idle = queues.idle(self._orderer.holding)
        return idle if not idle or self._reporter.flush(self._stop.is_set) else set()

    def _holds_due(self, queues: RunQueues) -> bool:
        """Return whether a pipeline that holds followers may have a run now. Dead letters are queried every DEAD_LETTER_SECONDS."""
        idle = self._idle(queues)
        if len(self._returned) or idle & self._orderer.has_free:
            return True
        now = time.monotonic()
        if not idle or now - self._checked_at < DEAD_LETTER_SECONDS:
            return False
        self._checked_at = now
        return self._orderer.has_news(idle)

    def _bounds(self, queues: RunQueues) -> Bounds | None:
        """Wait a short time for new events. Return the bounds of the next batch, or None if there is nothing to do."""
        at = self._orderer.at
        tick = self._max_tick if self._orderer.waits_for_time else None
        if self._orderer.holds_for_removed or self._holds_due(queues):
            tick = 0
        max_wait = _BUSY_SECONDS if self._orderer.has_free else _POLL_SECONDS
        wait = 0.0 if tick == 0 else min(max_wait, self._max_tick / _MICROS)
        try:
            news = self._client.request(
                WAIT_FOR_EVENTS, None, query={"after": at.seq, "after_redelivery_id": at.last_redelivery_id, "wait": wait}
            )
        except ApiUnavailable as error:
            self._stop.wait(error.retry_after or _POLL_SECONDS)  # the heartbeat logs that the API is unavailable
            return None
        return next_bounds(at, news, time.time_ns() // 1000, max_rows=self._orderer.max_events, tick=tick)

    def _batch_ended(self, batch: Batch) -> None:
        if self._compactor is not None:
            self._compactor.runs_ended(batch.runs)
        seconds = round(time.monotonic() - batch.began, 3)
        if batch.read:
            self._reporter.batch_ended(BatchEnded(scope=self._options.scope, read=batch.read, seconds=seconds))
        self._log.info("batch ended", batch=batch.number, read=batch.read, released=batch.released, runs=batch.runs, seconds=seconds)


def _register(client: PipelineClient, project: str, log_url: str | None, stop: threading.Event) -> JobRegistered | None:
    """Register this process, waiting for the API. Return None if a stop is requested first."""
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
            log.warning("waiting for the API", error=str(error))
            stop.wait(1.0)
    return None


def _complete(client: PipelineClient, end: CompleteJob) -> None:
    """Report how the job ended. If the API is unavailable, it detects the end by missing heartbeats."""
    try:
        client.complete(end)
    except ApiError as error:
        structlog.get_logger(__name__).warning("the end of the job was not reported", error=str(error))
