"""A JVM that is out of memory or hangs: the pipeline process ends and reports the pipeline."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.pipelines.kit import KEY, Api, leg, until
from support.pipelines.run import open_runs

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

PROCESS = """\
import os, signal, sys, threading
from pathlib import Path
from headrace import Project
from headrace.errors import HeadraceError
from headrace.pipeline.spark import jvm_watch
from headrace.pipeline.driver import run_pipeline
from headrace.pipeline.options import PipelineOptions

url, home, does = sys.argv[1:]
if does == "hang":  # a JVM that fills its memory may be silent for longer on a busy machine
    jvm_watch.PERIOD_SECONDS, jvm_watch.MAX_ANSWER_SECONDS = 0.2, 3
project = Project("flights")

@project.pipeline(on="legs.*", table="legs", name="greedy")
def greedy(events):
    if does == "die of one event":
        if any(row.id == "2" for row in events.collect()):
            os.kill(events.sparkSession.sparkContext._gateway.proc.pid, signal.SIGKILL)
        return events.select("id")
    if does == "hang":
        os.kill(events.sparkSession.sparkContext._gateway.proc.pid, signal.SIGSTOP)
        return events.select("id")
    text = events.sparkSession.range(1).selectExpr("repeat('x', 1900000000) AS text")
    return events.sparkSession.createDataFrame(text.toArrow())

if does == "die of one event":
    project.pipeline(on="legs.*", table="calm", name="calm")(lambda events: events.select("id"))

home = Path(home)
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
try:
    options = PipelineOptions(api_url=url, key=os.environ["KEY"], home=home, tables=home / "tables", scope="flights", begin=1)
    run_pipeline(project, options, stop)
except HeadraceError as error:
    sys.exit(f"error: {error}\\nhint: {error.hint}")
"""


@pytest.mark.parametrize("does", ["hang", "fill the memory"])
def test_a_hanging_jvm_or_one_without_memory_ends_the_process_with_an_error(does: str, api: Api, home: Path) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    api.feed([leg("1", trigger)])
    script = home / "process.py"
    script.write_text(PROCESS)
    ended = subprocess.run(
        [sys.executable, str(script), api.url, str(home), does],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "KEY": KEY},
    )
    assert ended.returncode == 1, ended.stderr
    assert "error: Spark's JVM died in the pipeline 'greedy', in batch 1." in ended.stderr
    assert "hint: See spark.log" in ended.stderr
    assert ("JVM killed" in ended.stdout + ended.stderr) == (does == "hang")


@pytest.mark.timeout(900)  # up to twelve starts of a JVM, beside other tests
def test_the_event_that_crashes_the_jvm_is_isolated_and_the_others_are_stored(api: Api, home: Path) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    api.feed([leg(str(number), trigger) for number in range(4)])
    script = home / "process.py"
    script.write_text(PROCESS)
    command = [sys.executable, str(script), api.url, str(home), "die of one event"]
    assert any(not exit_code(command, api) for _ in range(12)), "the event is not found"
    assert letters(api) == [("greedy", [(3, 3)])]
    for table, ids in (("legs", {"0", "1", "3"}), ("calm", {"0", "1", "2", "3"})):
        rows = [row["id"] for path in (home / "tables" / table).glob("*.parquet") for row in pq.read_table(path).to_pylist()]
        assert sorted(rows) == sorted(ids)


def exit_code(command: list[str], api: Api) -> int:
    """Run a pipeline until it dies, or until all is handled, and return its exit code."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**os.environ, "KEY": KEY})
    try:
        until(lambda: process.poll() is not None or bool(letters(api) and not open_runs(api)), "it died, or all is handled")
    finally:
        process.terminate()
        code = process.wait(60)
    return code


def letters(api: Api) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(letter.pipeline, letter.seqs) for letter in api.store.pipeline_dead_letters.page(limit=9).dead_letters]
