"""Real clusters of Spark on this machine, and pipelines that run on them; their executors have Spark's own packages and nothing else."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pyspark

from headrace.pipeline.spark.class_archive import archive_options
from headrace.pipeline.spark.java import find_java
from headrace.pipeline.table_storage.tables import Tables
from headrace.process.child import LIFELINE
from headrace.wire.custody.events import EventItem
from support.pipelines.bucket_tables import delta_table
from support.pipelines.kit import KEY, Api, leg, until
from support.pipelines.plans import stored_cursor
from support.pipelines.run import open_runs
from support.processes.deployment import lifeline
from support.processes.ports import free_port

SPARK = Path(pyspark.__file__).parent
FOR_EXECUTORS = ("pyspark", "py4j", "pyarrow", "numpy*", "pandas*", "pytz", "tzdata", "dateutil", "six.py")

PATIENCE = 240.0
"""In seconds: a cluster on a busy machine takes minutes to start the first task."""
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"

PROJECT = """\
from beside import looked
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace import Directory, Project

project = Project("flights")
project.watch("legs.a", Directory("feed", pattern="*.jsonl"), id="$.leg")


@project.pipeline(on="legs.*", table="legs", payload="n long, gate string")
def legs(events: DataFrame) -> DataFrame:
    look = fn.udf(lambda gate: looked(gate), "string")
    return events.select("position", "mark", "id", "follows", look("payload.gate").alias("looked"))


@project.pipeline(on="legs.*", table="sums", payload="n long, gate string")
def sums(events: DataFrame) -> DataFrame:
    return events.groupBy((fn.col("payload.n") % 4).alias("rest")).agg(fn.count("*").alias("events"), fn.sum("payload.n").alias("n"))
"""

BESIDE = '''\
"""Beside the project file; the executors have it from there."""

import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path


def looked(gate):
    """Say where it runs and what there is; where there is a gate, say so to who waits there, and wait until it is open."""
    if gate:
        (Path(gate) / str(os.getpid())).touch()
        while not (Path(gate) / "open").exists():
            time.sleep(0.05)
    import headrace

    return json.dumps({
        "python": sys.executable,
        "beside": __file__,
        "headrace": headrace.__file__,
        "httpx": find_spec("httpx") is not None,
    })
'''


def bare_python(folder: Path) -> Path:
    """Make a Python that has what executors need, and no Headrace."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    link_packages(packages)
    python = folder / "bin" / "python"
    lacking = subprocess.run([python, "-c", "import headrace"], capture_output=True, text=True, cwd=folder, env=clean_environment())
    assert "No module named 'headrace'" in lacking.stderr
    return python


def link_packages(folder: Path) -> None:
    """Link the packages that executors need into a folder of packages."""
    folder.mkdir(exist_ok=True)
    for pattern in FOR_EXECUTORS:
        for found in SPARK.parent.glob(pattern):
            (folder / found.name).symlink_to(found)


def clean_environment(**more: str) -> dict[str, str]:
    """Return the environment without what could lead to Headrace or configure it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "PYTHON", "PYSPARK_", "SPARK_"))}
    return kept | more


class Standalone:
    """A master and two workers of one core each, started from pip's pyspark. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self._exits = ExitStack()

    def __enter__(self) -> Standalone:
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(self.port))
        until(self._listens, "the master listens")
        for number in (1, 2):
            more = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work-{number}"), self.url)
            self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *more)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _start(self, name: str, main: str, *arguments: str) -> None:
        java = find_java(self.folder)
        options = " ".join([QUICK_JVM, *archive_options(java)])
        environment = clean_environment(
            SPARK_HOME=str(SPARK), JAVA_HOME=str(java), SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=options
        )
        command = [str(SPARK / "bin" / "spark-class"), main, "--webui-port", "0", *arguments]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = psutil.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder)
        self._exits.callback(end, process)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def end(process: psutil.Popen) -> None:
    """Kill a process and all that it started."""
    if process.poll() is None:
        for child in process.children(recursive=True):
            child.kill()
        process.kill()
    process.wait()


@dataclass
class Driver:
    """A `headrace pipeline` process on a cluster, which a test kills and starts again."""

    api: Api
    home: Path
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    tables: Tables | None = None
    """Where the tables are, in the format Delta, if not in the home."""

    def __post_init__(self) -> None:
        self.project = self.home / "project"
        self.project.mkdir()
        text = PROJECT if self.tables is None else PROJECT.replace(", payload=", ', format="delta", payload=')
        (self.project / "project.py").write_text(text)
        (self.project / "beside.py").write_text(BESIDE)
        self.trigger = self.api.triggers("legs.a")["legs.a"]
        self.fed = 0

    @contextmanager
    def running(self) -> Iterator[psutil.Popen]:
        """Run the pipeline; one that still runs at the end is told to end, and must do so well."""
        given = {
            "HEADRACE_KEY": KEY,
            "HEADRACE_API_URL": self.api.url,
            "HEADRACE_HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join(sys.path),
            LIFELINE: "stdin",
        }
        command = [sys.executable, "-m", "headrace", "pipeline", "--project", str(self.project / "project.py"), *self.arguments]
        with (self.home / "driver.log").open("ab") as log:
            environment = clean_environment(**(given | self.environment))
            process = psutil.Popen(command, stdin=lifeline(), stdout=log, stderr=log, env=environment, cwd=self.home)
        try:
            yield process
            if process.poll() is None:
                process.terminate()
                assert process.wait(60) == 0, self.log()
        finally:
            end(process)

    def log(self) -> str:
        return (self.home / "driver.log").read_text()[-4000:]

    def feed(self, gate: Gate | None = None) -> None:
        """Append a chain of events to the log, the last one first; one of them stops at the gate."""
        links = range(self.fed, self.fed + 20)
        self.fed += 20
        events: list[EventItem] = []
        for link in links:
            stop = {"gate": str(gate.folder)} if gate is not None and link == links[7] else {}
            events.append(leg(str(link), self.trigger, follows=str(link - 1) if link else None, n=link, **stop))
        self.api.feed(reversed(events))

    def until_handled(self, process: psutil.Popen) -> None:
        def handled() -> bool:
            return stored_cursor(self.api.store, "flights").cursor >= self.fed and not open_runs(self.api)

        self.until(process, handled, f"{self.fed} events are handled")

    def until(self, process: psutil.Popen, condition: Any, what: str) -> None:
        def alive() -> bool:
            assert process.poll() is None, self.log()
            return True

        until(condition, what, alive, PATIENCE)

    def table(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table, a run after the other."""
        if self.tables is not None:
            rows = delta_table(self.tables / name).to_pyarrow_table()
            ordered: list[dict[str, Any]] = (rows.sort_by("position") if "position" in rows.column_names else rows).to_pylist()
            return ordered
        return [row for path in sorted((self.home / "tables" / name).glob("*.parquet")) for row in pq.read_table(path).to_pylist()]

    def judge(self, python: Path) -> None:
        """Each event once and after the one it follows, in every table; and what ran on the executors ran without what they lack."""
        rows = self.table("legs")
        assert [(row["position"], row["id"], row["mark"]) for row in rows] == [(n + 1, str(n), None) for n in range(self.fed)]
        sums = self.table("sums")
        assert sum(row["events"] for row in sums) == self.fed
        assert sum(row["n"] for row in sums) == sum(range(self.fed))
        for text in {row["looked"] for row in rows}:
            found = json.loads(text)
            assert found["python"] == str(python)
            assert not found["httpx"]
            assert Path(found["beside"]).parent.suffix == ".zip"
            assert Path(found["headrace"]).parents[1].name == "headrace.zip"


class Gate:
    """Where a task on an executor stops until the test lets it go on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._known: set[int] = set()

    def who_came(self, driver: Driver, process: psutil.Popen) -> psutil.Process:
        """Wait for a task that was not here before, and return its executor."""
        driver.until(process, lambda: self._here() - self._known, f"a task is at the gate, {driver.home}")
        (pid,) = self._here() - self._known
        self._known.add(pid)
        above = psutil.Process(pid).parents()
        return next(each for each in above if any("CoarseGrainedExecutorBackend" in word for word in each.cmdline()))

    def open(self) -> None:
        (self.folder / "open").touch()

    def _here(self) -> set[int]:
        return {int(path.name) for path in self.folder.iterdir() if path.name.isdecimal()}


def kill(process: psutil.Process) -> None:
    """End a process as a crash would."""
    process.send_signal(signal.SIGKILL)


def spark_home(folder: Path) -> Path:
    """Return a Spark home that is pip's, but for the folder of the executors' logs: `local-cluster` makes one in it."""
    folder.mkdir()
    for found in SPARK.iterdir():
        if found.name != "work":
            (folder / found.name).symlink_to(found)
    return folder
