"""A JVM that is out of memory or hangs: the pipeline process ends by itself and names the pipeline."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_kit import KEY, Api, leg

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

PROCESS = """\
import os, signal, sys, threading
from pathlib import Path
from headrace import Project
from headrace.errors import HeadraceError
from headrace.pipeline import jvm_watch
from headrace.pipeline.driver import run_pipeline
from headrace.pipeline.options import PipelineOptions

jvm_watch.PERIOD_SECONDS, jvm_watch.MAX_SILENCE_SECONDS = 0.2, 3
url, home, does = sys.argv[1:]
project = Project("flights")

@project.pipeline(on="legs.*", table="legs", name="greedy")
def greedy(events):
    if does == "hang":
        os.kill(events.sparkSession.sparkContext._gateway.proc.pid, signal.SIGSTOP)
        return events.select("id")
    text = events.sparkSession.range(1).selectExpr("repeat('x', 1900000000) AS text")
    return events.sparkSession.createDataFrame(text.toArrow())

home = Path(home)
try:
    options = PipelineOptions(api_url=url, key=os.environ["KEY"], home=home, tables=home / "tables", scope="flights", begin=1)
    run_pipeline(project, options, threading.Event())
except HeadraceError as error:
    sys.exit(f"error: {error}\\nhint: {error.hint}")
"""


@pytest.mark.parametrize("does", ["hang", "fill the memory"])
def test_a_jvm_that_hangs_or_has_no_memory_ends_the_process_in_words(does: str, api: Api, home: Path) -> None:
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
    assert ("jvm killed" in ended.stdout + ended.stderr) == (does == "hang")
