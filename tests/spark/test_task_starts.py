"""A pipeline starts task runs once for each batch and arguments, even if the batch is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.project import Project
from headrace.store.queries.task_runs import task_run, task_run_list
from headrace.tasks.run import Run
from support.pipelines.kit import Api, leg
from support.pipelines.run import running

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.slow
def test_a_repeated_batch_starts_no_second_task_run(api: Api, home: Path, spark: SparkSession) -> None:
    project = Project("flights")

    @project.task()
    def score(run: Run, most: int) -> None:
        return

    calls: list[int] = []

    @project.pipeline(on="legs.*")
    def legs(events: DataFrame) -> None:
        calls.append(events.count())
        score.start(most=max(row.n for row in events.select("payload.n").collect()))
        score.start("once a batch", most=0)
        if len(calls) == 1:
            raise RuntimeError("it comes again, and what it started is started")

    ids = api.triggers("legs.a")
    with running(project, api.options(home), spark) as run:
        api.feed([leg("a", *ids.values(), n=1), leg("b", *ids.values(), n=7)])
        run.until_handled(api, 2)
    with api.store.reading() as connection:
        found = task_run_list(connection, limit=99)
        kwargs = sorted(detail.kwargs for one in found if (detail := task_run(connection, one.run_id)) is not None)
    batches = len(calls) - 1
    assert batches >= 1
    assert len(found) == 2 * batches
    assert kwargs[0] == '{"most":0}'
    assert kwargs[-1] == '{"most":7}'
    assert {(one.task, one.state) for one in found} == {("score", "scheduled")}
