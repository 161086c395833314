"""A table has the identity of its event log: a driver with another database stores nothing in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import RunConflict
from headrace.pipeline.options import PipelineOptions
from headrace.project import Project
from support.pipelines.kit import Api, leg, running_api, until
from support.pipelines.plans import stored_cursor
from support.pipelines.run import files, running, table
from support.processes.store import Holder

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-tables")]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["reset", "trim"])
def test_a_driver_of_a_restored_database_is_refused_until_the_tables_match(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """Store 13. Each way of the guide goes on, with each row once."""
    project = Project("flights")

    @project.pipeline(on="legs.*", table="legs", payload="n long", batch="each")
    def legs(events: DataFrame) -> DataFrame:
        return events.select("id")

    database = tmp_path / "headrace.db"
    feeders: dict[tuple[str, ...], Holder] = {}

    @contextmanager
    def restarted(number: int, name: str) -> Iterator[tuple[Api, PipelineOptions]]:
        """Give an API on the database, with more events, and the options of a driver with another home."""
        with running_api(tmp_path) as api:
            api.feeders = feeders
            api.take_over()
            trigger = api.triggers("legs.a")["legs.a"]
            api.feed([leg(f"{name}-{n}", trigger, n=n) for n in range(3)])
            yield api, api.options(tmp_path / f"home-{number}", tables=tmp_path / "tables")

    for number, name in enumerate(("first", "second")):
        with restarted(number, name) as (_, options), running(project, options, spark) as run:
            until(partial(is_stored, options, f"{name}-2"), "its row is there", run.alive)
        if name == "first":
            copy = database.read_bytes()
    for rest in tmp_path.glob("headrace.db*"):
        rest.unlink()
    database.write_bytes(copy)
    with restarted(2, "third") as (api, options):
        with running(project, options, spark) as run:
            failure = run.until_failed()
        assert isinstance(failure, RunConflict)
        assert "the database was restored from a backup" in str(failure)
        assert {row["id"] for row in table(options, "legs")} == {f"{name}-{n}" for name in ("first", "second") for n in range(3)}
        if way == "reset":
            api.store.scopes.reset("flights", None)
            api.feed([leg("last", api.triggers("legs.a")["legs.a"], n=1)])
            wanted = [*(f"{name}-{n}" for name in ("first", "second") for n in range(3)), "last"]
        else:
            moved = [path for path in files(options, "legs") if int(path.name[:9]) > stored_cursor(api.store, "flights").batch]
            assert moved
            for path in moved:
                path.rename(tmp_path / path.name)
            command = (failure.hint or "").partition("then: headrace ")[2].partition(";")[0]
            assert CliRunner().invoke(app, command).exit_code == 0
            wanted = [f"{name}-{n}" for name in ("first", "third") for n in range(3)]
        with running(project, options, spark) as run:
            until(partial(is_stored, options, wanted[-1]), "its row is there", run.alive)
    assert sorted(row["id"] for row in table(options, "legs")) == sorted(wanted)


def is_stored(options: PipelineOptions, id: str) -> bool:
    return id in [row["id"] for row in table(options, "legs")]


def test_a_driver_of_a_new_database_is_refused_until_its_operator_adopts_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    project = Project("flights")

    @project.pipeline(on="legs.*", table="legs", payload="n long")
    def legs(events: DataFrame) -> DataFrame:
        return events.select("id")

    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        with running_api(tmp_path / name) as api:
            trigger = api.triggers("legs.a")["legs.a"]
            api.feed([leg(name, trigger, n=1)])
            options = api.options(tmp_path / name, tables=tmp_path / "tables")
            if name == "second":
                with running(project, options, spark) as run:
                    failure = run.until_failed()
                assert isinstance(failure, RunConflict)
                assert "The table 'legs' has rows of the scope 'flights' from the event log" in str(failure)
                assert [row["id"] for row in table(options, "legs")] == ["first"]
                _, _, command = (failure.hint or "").partition("headrace ")
                assert CliRunner().invoke(app, command).exit_code == 0
            with running(project, options, spark) as run:
                until(partial(is_stored, options, name), "its row is there", run.alive)
    assert sorted(row["id"] for row in table(options, "legs")) == ["first", "second"]
