"""A table knows the log that it is of: a driver whose database is another one stores nothing in it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import RunConflict
from headrace.pipeline.options import PipelineOptions
from headrace.project import Project
from pipeline_kit import leg, running_api, until
from pipeline_run import running, table

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def is_stored(options: PipelineOptions, id: str) -> bool:
    return id in [row["id"] for row in table(options, "legs")]


def test_a_driver_of_a_new_database_is_refused_until_its_operator_says_so(spark: SparkSession, tmp_path: Path) -> None:
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
    assert [row["id"] for row in table(options, "legs")] == ["first", "second"]
