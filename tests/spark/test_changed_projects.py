"""A project changes while a run is open: planned runs keep their definition, and later events follow the new definition."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.core.batching import BatchPolicy, Window
from headrace.pipeline.options import PipelineOptions
from headrace.project import Project
from support.pipelines.kit import Api, leg, until
from support.pipelines.run import files, no_reports, open_runs, running, table

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.slow]


def project_of(to: str | None, batch: BatchPolicy = "micro") -> Project:
    project = Project("flights")

    @project.pipeline(on="legs.*", table=to, batch=batch, attempts=1)
    def legs(events: DataFrame) -> DataFrame | None:
        return None if to is None else events.select("id", "position")

    return project


def left_open(api: Api, options: PipelineOptions, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> int:
    """Leave a run of two events open, as a driver does that is killed before its table `legs` has the rows; return the trigger."""
    trigger = api.triggers("legs.a")["legs.a"]
    with no_reports(monkeypatch), running(project_of("legs"), options, spark) as run:
        api.feed([leg("1", trigger, n=1), leg("2", trigger, n=2)])
        run.until_failed()
    (made,) = files(options, "legs")
    made.unlink()
    assert open_runs(api) == 1
    return trigger


def rows(options: PipelineOptions, name: str) -> list[tuple[object, object]]:
    return [(row["id"], row["position"]) for row in table(options, name)]


def test_an_open_run_writes_to_the_table_of_its_plan(api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    options = api.options(home)
    trigger = left_open(api, options, spark, monkeypatch)
    with running(project_of("others"), options, spark) as run:
        api.feed([leg("3", trigger, n=3)])
        run.until_handled(api, 3)
    assert (rows(options, "legs"), rows(options, "others")) == ([("1", 1), ("2", 2)], [("3", 3)])


def test_an_open_run_without_its_table_becomes_a_dead_letter(
    api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = api.options(home)
    trigger = left_open(api, options, spark, monkeypatch)
    with running(project_of(None), options, spark) as run:
        api.feed([leg("3", trigger, n=3)])
        run.until_handled(api, 3)
        until(lambda: open_runs(api) == 0, "no run is open", run.alive)
    found = api.store.pipeline_dead_letters.page(limit=9).dead_letters
    assert sorted(seq for letter in found for first, last in letter.seqs for seq in range(first, last + 1)) == [1, 2]
    assert all("fills the table 'legs' but returns NoneType" in letter.error for letter in found)


def test_held_events_follow_the_current_batch_policy(api: Api, home: Path, spark: SparkSession) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    with running(project_of("legs", Window(100)), options, spark) as run:
        api.feed([leg(str(number), trigger, n=number) for number in range(5)])
        run.until_handled(api, 5)
        assert rows(options, "legs") == []
    with running(project_of("legs", Window(2)), options, spark) as run:
        until(lambda: len(rows(options, "legs")) == 4, "two windows are full", run.alive)
    with running(project_of("legs"), options, spark) as run:
        api.feed([leg("5", trigger, n=5)])
        until(lambda: len(rows(options, "legs")) == 6, "nothing is held", run.alive)
    assert rows(options, "legs") == [(str(number), number + 1) for number in range(6)]
    assert len(files(options, "legs")) == 3
