"""A real driver holds the followers of a dead letter and is killed: the next driver still holds them and releases them in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.options import PipelineOptions
from headrace.project import Project
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetterSelection
from support.pipelines.kit import KEY, Api, leg, until
from support.pipelines.plans import stored_cursor
from support.pipelines.run import open_runs, running, table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

PROCESS = """\
import os, sys, threading
from pathlib import Path
from headrace import Project
from headrace.pipeline.driver import run_pipeline
from headrace.pipeline.options import PipelineOptions

url, home = sys.argv[1:]
project = Project("flights")

@project.pipeline(on="legs.a", table="legs", on_failure="hold", attempts=1, payload="n long")
def legs(events):
    if any(row.id == "2" for row in events.collect()):
        raise ValueError("no")
    return events.select("id", "position")

@project.pipeline(on="legs.*", table="others", payload="n long")
def others(events):
    return events.select("id", "position")

home = Path(home)
options = PipelineOptions(api_url=url, key=os.environ["KEY"], home=home / "first", tables=home / "tables", scope="flights", begin=1)
run_pipeline(project, options, threading.Event())
"""


def project_of(bad: set[str]) -> Project:
    project = Project("flights")

    @project.pipeline(on="legs.a", table="legs", on_failure="hold", attempts=1, payload="n long")
    def legs(events: DataFrame) -> DataFrame:
        if any(row.id in bad for row in events.collect()):
            raise ValueError("no")
        return events.select("id", "position")

    @project.pipeline(on="legs.*", table="others", payload="n long")
    def others(events: DataFrame) -> DataFrame:
        return events.select("id", "position")

    return project


def held(api: Api) -> int:
    report = stored_cursor(api.store, "flights").report
    return 0 if report is None else report.held


def ids(options: PipelineOptions, name: str) -> list[object]:
    return [row["id"] for row in table(options, name)]


@pytest.mark.timeout(300)
def test_held_followers_survive_a_kill_and_are_released_in_order(api: Api, home: Path, spark: SparkSession) -> None:
    names = api.triggers("legs.a", "legs.b")
    taken, other = names["legs.a"], names["legs.b"]
    # 1 <- 2, on which the pipeline fails <- x, which it does not take <- 3 <- 4; and 9 by itself
    chain = [leg("1", taken), leg("2", taken, follows="1"), leg("x", other, follows="2"), leg("3", taken, follows="x")]
    api.feed([*chain, leg("4", taken, follows="3"), leg("9", taken)])
    options = api.options(home, tables=home / "tables")
    script = home / "process.py"
    script.write_text(PROCESS)
    command = [sys.executable, str(script), api.url, str(home)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**os.environ, "KEY": KEY})
    try:
        until(
            lambda: held(api) == 2 and not open_runs(api) and len(ids(options, "others")) == 6 and set(ids(options, "legs")) == {"1", "9"},
            "what follows is held",
            lambda: process.poll() is None,
        )
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    (letter,) = api.store.pipeline_dead_letters.page(limit=9).dead_letters
    assert (letter.pipeline, letter.seqs) == ("legs", [(2, 2)])
    bad = {"2"}
    with running(project_of(bad), options, spark) as run:
        api.feed([leg("5", taken, follows="4"), leg("8", taken, follows="9")])
        until(lambda: "8" in ids(options, "legs") and held(api) == 3 and not open_runs(api), "one more is held", run.alive)
        bad.clear()
        assert api.store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(ids=[letter.id])).count == 1
        until(lambda: len(ids(options, "legs")) == 7 and not held(api) and not open_runs(api), "nothing is held", run.alive)
    rows = sorted(table(options, "legs"), key=lambda row: row["position"])
    assert sorted(row["id"] for row in rows) == list("1234589")
    positions = {row["id"]: row["position"] for row in table(options, "others")}
    assert {row["id"]: row["position"] for row in rows}.items() <= positions.items()
    done = [
        run.seqs
        for run in sorted(api.runs(), key=lambda run: run.finished or run.started)
        if run.pipeline == "legs" and run.state == "succeeded"
    ]
    order = [seq for seqs in done for first, last in seqs for seq in range(first, last + 1)]
    assert [seq for seq in order if seq in (2, 4, 5, 7)] == [2, 4, 5, 7]
    assert api.store.pipeline_dead_letters.page(limit=9).dead_letters == []
