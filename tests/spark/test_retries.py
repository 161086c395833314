"""Retries of pipelines delay no other pipeline, for any number of failed pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.execution import executor
from headrace.project import Project
from support.pipelines.kit import Api, leg, until
from support.pipelines.run import running, table

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_pipelines_that_wait_for_a_retry_do_not_block_others(
    api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "FIRST_PAUSE_SECONDS", 3_600.0)
    monkeypatch.setattr(executor, "MAX_PAUSE_SECONDS", 3_600.0)
    ids = api.triggers("bad", "good")
    project = Project("flights")
    for number in range(executor.MAX_CONCURRENT_RUNS + 1):

        @project.pipeline(on="bad", name=f"fails{number}")
        def fails(events: DataFrame) -> None:
            raise ValueError("no")

    @project.pipeline(on="good", table="legs")
    def legs(events: DataFrame) -> DataFrame:
        return events.select("id")

    options = api.options(home)
    with running(project, options, spark):
        api.feed([leg("1", ids["bad"])])
        until(lambda: sum(run.state == "failed" for run in api.runs()) == executor.MAX_CONCURRENT_RUNS + 1, "a first failure of each")
        api.feed([leg("2", ids["good"])])
        until(lambda: any(run.pipeline == "legs" and run.state == "succeeded" for run in api.runs()), "a run of another pipeline")
    assert [row["id"] for row in table(options, "legs")] == ["2"]
