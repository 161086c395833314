"""Attempts that a driver does not end: they are interrupted, and the next driver repeats their runs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.project import Project
from support.pipelines.kit import Api, leg, until
from support.pipelines.run import open_runs, running, table

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_an_attempt_that_a_stop_interrupts_is_repeated_by_the_next_driver(api: Api, home: Path, spark: SparkSession) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    project = Project("flights")
    is_stopped = threading.Event()
    attempts: list[int] = []

    @project.pipeline(on="legs.*", table="legs")
    def legs(events: DataFrame) -> DataFrame:
        attempts.append(len(attempts) + 1)
        if attempts == [1]:
            assert is_stopped.wait(60)
            raise ConnectionError("closed by the stop")
        return events.select("id")

    api.feed([leg("a", trigger, n=1)])
    with running(project, options, spark) as run:
        until(lambda: [report.state for report in api.runs()] == ["running"], "the attempt is reported", run.alive)
        run.stop.set()
        is_stopped.set()
    (report,) = api.runs()
    assert (report.state, report.error, open_runs(api)) == ("interrupted", "The job of the driver ended during this attempt.", 1)

    with running(project, options, spark) as run:
        run.until_handled(api, 1)
    states = {report.attempt: report.state for report in api.runs()}
    assert (states, attempts) == ({1: "interrupted", 2: "succeeded"}, [1, 2])
    assert [row["id"] for row in table(options, "legs")] == ["a"]
