"""Run a project's triggers and pipelines on given events, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import msgspec
from pyspark.sql import DataFrame, SparkSession

from headrace.core.ranges import numbers_of
from headrace.errors import UsageError
from headrace.pipeline.spark.session import open_session
from headrace.project import Project, load_project
from headrace.testing.in_process_api import InProcessApi, open_api, registration
from headrace.testing.pipeline_run import PipelineRun, open_scope
from headrace.testing.trigger_run import TriggerRun
from headrace.wire.custody.events import DeadLetterItem
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetter

Events: TypeAlias = Sequence[Any] | Mapping[str, Sequence[Any]]
"""Raw events of the project's only stream, or of streams by the name of one of their triggers."""

LOOKBACK_SECONDS: Final = 900.0
TRIGGER_TIMEOUT_SECONDS: Final = 30.0
END_SECONDS: Final = 366 * 86_400.0
"""The scope's clock goes on by this at the end, so that each wait of a follower or a batch is over."""
MAX_DEAD_LETTERS: Final = 100_000
MASTER: Final = "local[2]"
QUICK_CONF: Final = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A raw event that triggers gave up on, or the events that a pipeline gave up on.

    `kind` is that of the dead letter, or `pipeline`. `raw` is the text of the raw event, None for a pipeline. `events` are ids.
    """

    kind: str
    reason: str
    triggers: tuple[str, ...] = ()
    raw: str | None = None
    pipeline: str | None = None
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProjectResult:
    """What a project made of events.

    `events`: the columns of a pipeline's DataFrame, in causal order, with the payload as a value. `tables`: rows by table.
    `held`: the number of events that a `Window` still holds at the end.
    """

    events: list[dict[str, Any]]
    tables: dict[str, list[dict[str, Any]]]
    dead_letters: list[DeadLetter]
    held: int
    _spark: SparkSession | None = field(repr=False, default=None)
    _schemas: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def rejected(self) -> list[DeadLetter]:
        """The dead letters of raw events that a trigger rejected."""
        return [item for item in self.dead_letters if item.kind == "rejected"]

    @property
    def lost(self) -> list[dict[str, Any]]:
        """The followers whose leader did not arrive within the lookback."""
        return [event for event in self.events if event["mark"] == "lost"]

    @property
    def late(self) -> list[dict[str, Any]]:
        """The leaders that arrived after a follower was released."""
        return [event for event in self.events if event["mark"] == "late"]

    def dataframe(self, table: str) -> DataFrame:
        """Return the rows of a table as a DataFrame of the session that was given. Raises `UsageError`."""
        if self._spark is None:
            raise UsageError("The session of this run has ended.", hint="Give run_project a session: spark=…")
        if table not in self.tables:
            raise UsageError(f"No pipeline wrote the table {table!r}.", hint=f"Tables: {', '.join(self.tables) or 'none'}.")
        return self._spark.createDataFrame(self.tables[table], self._schemas[table])


def run_project(
    project: Project | Path | str,
    *steps: Events,
    spark: SparkSession | None = None,
    pipelines: bool = True,
    lookback: float = LOOKBACK_SECONDS,
    between: float = 0.0,
    polls: Mapping[str, int] | None = None,
    timeout: float = TRIGGER_TIMEOUT_SECONDS,
) -> ProjectResult:
    """Run a project's triggers on raw events and its pipelines on the result, without processes or a network. Blocks.

    Each step is a list of raw events, or such lists by the name of a trigger that reads the stream. A raw event is what the upstream
    yields. For a stream of `RawEvent`s, it can be a JSON value, text or bytes. The scope's clock goes on by `between` seconds after a
    step. At the end it goes on past `lookback` and each batch policy. A failed attempt is repeated without a wait.

    Args:
        project: The project, or the path of its file.
        steps: Raw events.
        spark: Session for the pipelines. Without it, one is started and stopped.
        pipelines: Whether to run pipelines. Without them, Java is not needed.
        lookback: Seconds that a follower waits for its leader.
        between: Seconds between two steps.
        polls: The number of events to take from triggers that poll alone, by name. Others of them do not run.
        timeout: Seconds within which the triggers must answer the raw events of a step.

    Raises:
        UsageError: The project has no such trigger, or several streams and no name.
        TimeoutError: A trigger did not answer in time.
        PipelineError: Spark failed. A pipeline that fails becomes a dead letter.
    """
    if not isinstance(project, Project):
        project = load_project(Path(project))
    named = [_named(project, step) for step in steps]
    with TemporaryDirectory(prefix="headrace-test-", ignore_cleanup_errors=True) as folder, ExitStack() as exits:
        tables = Path(folder) / "tables"
        session = None
        if pipelines and project.pipelines:
            session = exits.enter_context(quick_session(Path(folder) / "spark")) if spark is None else spark
        api = exits.enter_context(open_api(Path(folder)))
        triggers = exits.enter_context(_triggers(project, api))
        scope = exits.enter_context(_scope(project, api, tables, session, lookback))
        for name, count in (polls or {}).items():
            api.portal.call(triggers.poll, name, count, timeout)
        for step in named:
            api.portal.call(triggers.give, step, timeout)
            scope.step()
            scope.step(between)
        scope.step(lookback + END_SECONDS)
        return _result(api, triggers, scope, _rows(project, session, tables), spark)


def quick_session(work: Path) -> AbstractContextManager[SparkSession]:
    """Open a local session with few partitions. `work` is for its logs and scratch files."""
    return open_session("test", master=MASTER, work=work, conf=QUICK_CONF)


@contextmanager
def _triggers(project: Project, api: InProcessApi) -> Iterator[TriggerRun]:
    run = api.portal.call(_new_trigger_run, project, api)
    try:
        api.portal.call(run.start)
        yield run
    finally:
        api.portal.call(run.stop)


async def _new_trigger_run(project: Project, api: InProcessApi) -> TriggerRun:
    return TriggerRun(project, api.triggerer())


@contextmanager
def _scope(project: Project, api: InProcessApi, tables: Path, spark: SparkSession | None, lookback: float) -> Iterator[PipelineRun]:
    with api.pipeline() as client:
        client.register(registration("pipeline", project.name))
        with open_scope(project, client, tables, spark, lookback) as scope:
            yield scope


def _named(project: Project, events: Events) -> Mapping[str, Sequence[Any]]:
    """Return the raw events by the name of a trigger."""
    if isinstance(events, Mapping):
        return events
    readers = {key: name for name, trigger in project.triggers.items() if (key := trigger.shared_stream_key()) is not None}
    if len(readers) != 1:
        raise UsageError(
            f"The project reads {len(readers)} streams.", hint='Name a trigger of the stream for each list: {"orders.new": [...]}.'
        )
    return dict.fromkeys(readers.values(), events)


def _rows(project: Project, spark: SparkSession | None, tables: Path) -> Mapping[str, DataFrame]:
    """Return the tables that exist."""
    formats = {pipeline.table: pipeline.format for pipeline in project.pipelines.values() if pipeline.table is not None}
    if spark is None:
        return {}
    return {table: _read(spark, tables / table, kind) for table, kind in formats.items() if (tables / table).exists()}


def _read(spark: SparkSession, folder: Path, kind: str) -> DataFrame:
    if kind == "parquet":
        return spark.read.parquet(str(folder))
    if kind == "iceberg":
        from headrace.pipeline.tables.iceberg.maintenance import opened

        return spark.createDataFrame(opened(folder).scan().to_arrow())
    from deltalake import DeltaTable

    return spark.createDataFrame(DeltaTable(folder).to_pyarrow_table())


def _result(
    api: InProcessApi, triggers: TriggerRun, scope: PipelineRun, tables: Mapping[str, DataFrame], spark: SparkSession | None
) -> ProjectResult:
    ids = {event["seq"]: event["id"] for event in scope.events}
    failed = reversed(api.store.pipeline_dead_letters.page(limit=MAX_DEAD_LETTERS).dead_letters)
    dead_letters = [_raw_event_failure(item, triggers.names) for item in triggers.dead_letters]
    dead_letters += [_pipeline_failure(item, ids) for item in failed]
    rows = {table: [row.asDict(recursive=True) for row in frame.collect()] for table, frame in tables.items()}
    schemas = {table: frame.schema for table, frame in tables.items()}
    events = [event | {"payload": msgspec.json.decode(event["payload"])} for event in scope.events]
    return ProjectResult(events, rows, dead_letters, scope.held, spark, schemas)


def _raw_event_failure(item: DeadLetterItem, names: Mapping[int, str]) -> DeadLetter:
    return DeadLetter(item.kind, item.reason, tuple(names[number] for number in item.triggers), item.raw)


def _pipeline_failure(item: PipelineDeadLetter, ids: Mapping[int, str]) -> DeadLetter:
    events = tuple(ids[seq] for seq in numbers_of(item.seqs).tolist())
    return DeadLetter("pipeline", item.error, pipeline=item.pipeline, events=events)
