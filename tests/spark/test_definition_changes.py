"""A project changes while its driver is down: for each change and crash point, each event has one outcome.

For each pipeline, an event is in its rows or in a dead letter, once. Which of both, and in which table, the guide to pipelines says.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from sqlalchemy import select

from headrace.core.batching import Debounce, Window
from headrace.errors import PipelineError
from headrace.pipeline.execution.executor import RunExecutor
from headrace.pipeline.runs.run import Run
from headrace.project import Project
from headrace.store.tables.pipelines import planned_runs
from headrace.wire.custody.events import EventItem
from support.pipelines.kit import Api, leg, until
from support.pipelines.plans import stored_cursor
from support.pipelines.run import no_reports, open_runs, running

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

SEEDS: Final = (1,)
LOOKBACK: Final = 60.0
SUBJECT: Final = "subject"

Definition = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """The subject's definition before and after a crash (None: the project does not have it); `others` are there after it alone."""

    before: Definition | None
    after: Definition | None
    others: Mapping[str, Definition] = field(default_factory=dict)
    lookback: float = LOOKBACK


PLAIN: Final[Definition] = {"on": "legs.*", "table": SUBJECT}
HELD: Final[Definition] = {**PLAIN, "batch": Window(7, seconds=3600)}
QUIET: Final[Definition] = {**PLAIN, "batch": Debounce(3600)}
CHANGES: Final[dict[str, Change]] = {
    "added": Change(None, PLAIN),
    "removed": Change(PLAIN, None),
    "removed while it holds": Change(HELD, None),
    "renamed": Change(PLAIN, None, {"renamed": PLAIN}),
    "renamed while it holds": Change(HELD, None, {"renamed": {**HELD, "batch": Window(7, seconds=0.5)}}),
    "micro to window": Change(PLAIN, {**PLAIN, "batch": Window(3, seconds=0.5)}),
    "window to micro": Change(HELD, PLAIN),
    "window to each": Change(HELD, {**PLAIN, "batch": "each"}),
    "window to debounce": Change(HELD, {**PLAIN, "batch": Debounce(0.5)}),
    "window to smaller window": Change(HELD, {**PLAIN, "batch": Window(2, seconds=0.5)}),
    "debounce to micro": Change(QUIET, PLAIN),
    "each to debounce": Change({**PLAIN, "batch": "each"}, {**PLAIN, "batch": Debounce(0.5)}),
    "lookback": Change(HELD, {**PLAIN, "batch": Window(7, seconds=0.5)}, lookback=30.0),
    "payload declared": Change(PLAIN, {**PLAIN, "payload": "n long"}),
    "payload changed": Change({**PLAIN, "payload": "n long, leg string"}, {**PLAIN, "payload": "n long"}),
    "table renamed": Change(PLAIN, {**PLAIN, "table": "elsewhere"}),
    "table renamed while it holds": Change(HELD, {**PLAIN, "table": "elsewhere", "batch": Window(7, seconds=0.5)}),
    "parquet to delta": Change(PLAIN, {**PLAIN, "table": "elsewhere", "format": "delta"}),
    "release to hold": Change(PLAIN, {**PLAIN, "on_failure": "hold"}),
    "hold to release": Change({**PLAIN, "on_failure": "hold"}, PLAIN),
    "hold removed": Change({**PLAIN, "on_failure": "hold"}, None),
    "on": Change(PLAIN, {**PLAIN, "on": "legs.b"}),
    "on while it holds": Change(HELD, {**PLAIN, "on": "legs.b", "batch": Window(7, seconds=0.5)}),
}
CRASHES: Final = ("planned", "stored", "one of two", "stopped")


def project_of(definitions: Mapping[str, Definition | None]) -> Project:
    """Return a project whose pipelines write each event once, with the pipeline's name."""
    project = Project("flights")
    for name, definition in {"first": {"on": "legs.*", "table": "first"}, **definitions}.items():
        if definition is not None:

            def rows(events: DataFrame, name: str = name) -> DataFrame:
                return events.select(
                    fn.lit(name).alias("pipeline"), "id", "position", "follows", fn.col("payload.n").cast("long").alias("n")
                )

            project.pipeline(**definition, name=name)(rows)
    return project


def feeds(seed: int, *firings: int) -> tuple[list[EventItem], list[EventItem]]:
    """Return what comes before the crash and after it: chains, some of whose leaders come after it."""
    chance = random.Random(seed)
    before: list[EventItem] = []
    after: list[EventItem] = []
    for chain in range(12):
        late = chance.randrange(3) if chain % 3 == 0 else None
        for link in range(3):
            follows = f"{chain}-{link - 1}" if link else None
            (after if link == late else before).append(leg(f"{chain}-{link}", chance.choice(firings), follows=follows, n=link))
    after += [leg(f"new-{number}", chance.choice(firings), n=number) for number in range(6)]
    chance.shuffle(before)
    chance.shuffle(after)
    return before, after


@contextmanager
def crashing(point: str, api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let drivers die before any run, or before the subject's when the other pipeline's first runs have their outcomes."""
    execute = RunExecutor.__call__
    died = threading.Event()

    def dying(self: RunExecutor, run: Run) -> Any:
        if point == "planned" or run.pipeline == SUBJECT:
            if point != "planned":
                until(lambda: died.is_set() or "first" not in open_of(api, run.batch), "the other pipeline's run has its outcome")
            died.set()
            raise PipelineError("killed")
        return execute(self, run)

    with monkeypatch.context() as patched:
        patched.setattr(RunExecutor, "__call__", dying)
        yield


def open_of(api: Api, batch: int) -> set[str]:
    with api.store.reading() as connection:
        return set(connection.execute(select(planned_runs.c.pipeline).where(planned_runs.c.batch == batch)).scalars())


def crash(point: str, api: Api, monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[None]:
    if point == "stored":
        return no_reports(monkeypatch)
    return nullcontext() if point == "stopped" else crashing(point, api, monkeypatch)


def tables_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table, each pipeline's in the order in which they were written."""
    found: dict[str, list[dict[str, Any]]] = {}
    for table in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        if (table / "_delta_log").exists():
            found[table.name] = sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=lambda row: int(row["position"]))
        elif files := sorted(table.glob("*.parquet")):
            found[table.name] = pa.concat_tables(map(pq.read_table, files)).to_pylist()
    return found


def letters_of(api: Api) -> dict[str, Counter[int]]:
    """Return how often each event, by seq, is in a dead letter of each pipeline."""
    found: dict[str, Counter[int]] = {}
    for letter in api.store.pipeline_dead_letters.page(limit=1000).dead_letters:
        counts = found.setdefault(letter.pipeline, Counter())
        counts.update(seq for first, last in letter.seqs for seq in range(first, last + 1))
    return found


def waits_and_holds_nothing(api: Api) -> bool:
    cursor = stored_cursor(api.store, "flights")
    return not cursor.waiting and not (cursor.report and cursor.report.held) and not open_runs(api)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("change", "point"),
    [
        # Each change has two of the points in `make test-all`, and all four in `make test-exhaustive`.
        pytest.param(change, point, marks=[pytest.mark.exhaustive] if (row + column) % 2 else [])
        for row, change in enumerate(CHANGES)
        for column, point in enumerate(CRASHES)
    ],
)
def test_each_event_has_one_outcome_for_each_pipeline(
    change: str, point: str, seed: int, api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = CHANGES[change]
    ids = api.triggers("legs.a", "legs.b")
    names = {number: name for name, number in ids.items()}
    before, after = feeds(seed, *ids.values())
    pipelines = {SUBJECT: what.before, "companion": HELD}
    options = api.options(home / "one", tables=home / "tables", lookback=LOOKBACK, max_rows=20)
    api.feed(before)
    with crash(point, api, monkeypatch), running(project_of(pipelines), options, spark) as run:
        if point == "stopped" or (point == "one of two" and what.before in (None, QUIET)):
            run.until_handled(api, len(before))
        else:
            run.until_failed()
    released = stored_cursor(api.store, "flights").ordered
    renewed = {SUBJECT: what.after, "companion": {**HELD, "batch": Window(7, seconds=0.5)}, **what.others}
    elsewhere = api.options(home / "two", tables=home / "tables", lookback=what.lookback, max_rows=20)
    with running(project_of(renewed), elsewhere, spark) as run:
        api.feed(after)
        run.until_handled(api, len(before) + len(after))
        until(lambda: waits_and_holds_nothing(api), "nothing waits, is held or is open", run.alive)
    tables, letters = tables_of(home / "tables"), letters_of(api)
    events = {item.id: (seq, names[item.firings[0]]) for seq, item in enumerate([*before, *after], 1)}
    position = {row["id"]: row["position"] for row in tables["first"]}
    assert sorted(position.values()) == list(range(1, len(events) + 1))
    definitions = {"first": (PLAIN, PLAIN), **{name: (pipelines.get(name), renewed.get(name)) for name in {*pipelines, *renewed}}}
    for name, (old, new) in definitions.items():
        expected = Counter(seq for id, (seq, trigger) in events.items() if takes(old if position[id] <= released else new, trigger))
        rows = [row for table in tables.values() for row in table if row["pipeline"] == name]
        stored = Counter(events[row["id"]][0] for row in rows)
        given_up = letters.get(name, Counter())
        assert stored + given_up == expected, f"{name}: rows {stored}, dead letters {given_up}"
        assert new is None or not given_up, f"dead letters of {name}, which the project has"
        for table in tables.values():
            mine = [row["position"] for row in table if row["pipeline"] == name]
            assert mine == sorted(mine)
        assert all(row["position"] == position[row["id"]] for row in rows)
        assert all(row["follows"] is None or position[row["follows"]] < row["position"] for row in rows)
    if what.before is PLAIN and what.after is not None and what.after["table"] != SUBJECT:
        by_plan, by_project = ({row["position"] for row in tables[name] if row["pipeline"] == SUBJECT} for name in (SUBJECT, "elsewhere"))
        assert by_plan == set(range(1, released + 1)), "open runs write to the table of their plan"
        assert by_project == set(range(released + 1, len(events) + 1))


def takes(definition: Definition | None, trigger: str) -> bool:
    return definition is not None and definition["on"] in ("legs.*", trigger)
