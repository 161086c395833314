"""Run a replay: read and order the history, then backtest triggers and run pipelines if requested."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.client.pipeline import PipelineClient
from headrace.errors import PipelineError, UsageError
from headrace.pipeline.heartbeat import JobHeartbeat
from headrace.pipeline.spark.code_shipping import ship_functions
from headrace.pipeline.spark.errors import summary
from headrace.pipeline.spark.session import cores_of, open_session
from headrace.project import Project
from headrace.replay.backtest import TriggerReport, backtest
from headrace.replay.inputs.event_log import read_log
from headrace.replay.inputs.files import HistoryFiles, find_files, read_files
from headrace.replay.inputs.history import History
from headrace.replay.options import HistoryColumns, LogAccess, LogSelection, ReplayOptions
from headrace.replay.order.global_order import Outcome
from headrace.replay.order.order import check_out, order_history
from headrace.replay.pipelines import PipelineReplay, PipelineResult
from headrace.replay.project_inputs import on_same_stream
from headrace.replay.raw_events import RawEvents
from headrace.replay.spark_tasks import Progress, Tasks
from headrace.replay.watch_matches import SparkMatcher
from headrace.triggers.watch import WatchTrigger
from headrace.wire.calls.execution import GET_LOG_HEAD
from headrace.wire.control.jobs import EVERY_PROJECT, CompleteJob, RegisterJob

ARROW_ROWS: Final = "65536"
ORDERED: Final = "ordered"
TABLES: Final = "tables"


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The results of a replay, and its duration in seconds.

    `first` is the first event of the log, or None if the history was not the log.
    """

    out: Path
    seconds: float
    outcome: Outcome
    triggers: list[TriggerReport]
    pipelines: list[PipelineResult]
    first: int | None = None

    def on_wire(self) -> dict[str, Any]:
        """Return the report as plain values."""
        outcome = self.outcome
        return {
            "out": str(self.out),
            "seconds": round(self.seconds, 3),
            "first": self.first,
            "events": outcome.events,
            "lost": outcome.lost,
            "leader_under_another_key": outcome.crossing,
            "leader_under_another_key_examples": outcome.crossing_ids,
            "in_cycles": outcome.in_cycles,
            "cycles": outcome.cycles,
            "copies": outcome.copies,
            "without_id": outcome.unnamed,
            "without_moment": outcome.untimed,
            "triggers": [report.on_wire() for report in self.triggers],
            "pipelines": [asdict(ran) for ran in self.pipelines],
        }


class Stopped(PipelineError):
    """The replay was stopped; it left no output."""


def run_replay(
    options: ReplayOptions,
    project: Project | None,
    progress: Progress,
    spark: SparkSession | None = None,
    stop: threading.Event | None = None,
) -> ReplayReport:
    """Replay a history. Opens a session, and stops it at the end, unless one is given.

    Raises:
        Stopped: `stop` was set.
        JavaError: No Java 17 or newer.
        UsageError: The history does not exist, or lacks a given field.
        PipelineError: Spark or one of the project's pipelines failed.
        ApiError: The log cannot be read.
    """
    begun = time.monotonic()
    stop = stop or threading.Event()
    progress = _stopping(stop, progress)
    check_out(options.out)
    files = None if options.log is not None else find_files(options.paths, options.fields, cores_of(options.master))
    folders = ship_functions(pipeline.function for pipeline in project.pipelines.values()) if project is not None else []
    opened = nullcontext(spark) if spark else _session(options, folders)
    with opened as session, _translate_spark_errors(stop):
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", ARROW_ROWS)
        tasks = Tasks(session, progress, stop)
        with _history(session, options, files, project) as (history, names, first):
            outcome = order_history(history, options.out / ORDERED, options.work, tasks)
        events = RawEvents(options.out / ORDERED, names)
        reports, ran = _run_project(session, options, project, events, outcome, tasks, progress)
    return ReplayReport(options.out, time.monotonic() - begun, outcome, reports, ran, first)


def _session(options: ReplayOptions, folders: Sequence[Path]) -> AbstractContextManager[SparkSession]:
    return open_session("replay", master=options.master, work=options.work / "spark", conf=options.conf, folders=folders, is_batch=True)


def _run_project(
    spark: SparkSession,
    options: ReplayOptions,
    project: Project | None,
    events: RawEvents,
    outcome: Outcome,
    tasks: Tasks,
    progress: Progress,
) -> tuple[list[TriggerReport], list[PipelineResult]]:
    if project is None:
        return [], []
    triggers = on_same_stream(project, options.watch)
    reports: list[TriggerReport] = []
    if options.backtest:
        on_progress: Callable[[str, int], None] = lambda name, count: progress(f"backtest of {name}", count, outcome.events)  # noqa: E731
        reports = backtest(triggers, events, on_progress, SparkMatcher(spark, options.work, tasks))
    if not options.pipelines:
        return reports, []
    watches = {name: trigger for name, trigger in triggers.items() if isinstance(trigger, WatchTrigger)}
    tables = options.out.absolute() / TABLES
    return reports, PipelineReplay(spark, watches, tables, options.work).run(project.pipelines.values(), events, progress)


def _stopping(stop: threading.Event, progress: Progress) -> Progress:
    """Return a progress function that also raises `Stopped`, in the replay's own thread, once `stop` is set."""
    own = threading.current_thread()

    def report(phase: str, done: int, total: int) -> None:
        if stop.is_set() and threading.current_thread() is own:
            raise Stopped
        progress(phase, done, total)

    return report


@contextmanager
def _history(
    spark: SparkSession, options: ReplayOptions, files: HistoryFiles | None, project: Project | None
) -> Iterator[tuple[History, HistoryColumns, int | None]]:
    if options.log is not None:
        whose = EVERY_PROJECT if project is None else project.name
        with _log_access(options.log, whose, options.work) as access:
            yield (*read_log(spark, access, options.fields), access.first)
    elif files is not None:
        yield (*read_files(spark, files, options.fields), None)


@contextmanager
def _log_access(log: LogSelection, project: str, work: Path) -> Iterator[LogAccess]:
    """Register a job while the log is read; the tasks read its token from a file. `project`: whose triggers the log names."""
    work.mkdir(parents=True, exist_ok=True)
    token_file = work.absolute() / f"token-{uuid4().hex[:8]}"

    def keep(token: str) -> None:
        draft = token_file.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_text(token)
        draft.replace(token_file)

    try:
        with PipelineClient(log.api_url, key=log.key) as client:
            client.on_token = keep
            me = RegisterJob(registration_id=uuid4().hex, kind="pipeline", hostname=socket.gethostname(), pid=os.getpid(), project=project)
            job = client.register(me)
            with JobHeartbeat(client, job.heartbeat, threading.Event()):
                head = client.request(GET_LOG_HEAD, None)
                if head.head == 0:
                    raise UsageError("The event log is empty.", hint="Give folders of Parquet or JSON lines to replay those.")
                try:
                    yield LogAccess(log.api_url, token_file, max(1, head.first), head.head)
                except BaseException as error:
                    client.complete(CompleteJob(state="failed", reason=type(error).__name__))
                    raise
            client.complete(CompleteJob(state="succeeded"))
    finally:
        token_file.unlink(missing_ok=True)


@contextmanager
def _translate_spark_errors(stop: threading.Event) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:  # depending on the place, a cancelled job raises either
        if stop.is_set():
            raise Stopped from error
        raise PipelineError(f"The replay stopped: {summary(error)}", hint="See spark.log in the home folder; --debug shows all.") from error
