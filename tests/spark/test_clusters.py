"""A project on clusters whose executors have no Headrace, with kill -9 of an executor, a worker and the driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pipelines.kit import KEY, Api
from support.processes.spark_cluster import QUICK_JVM, Driver, Gate, Standalone, bare_python, clean_environment, kill, spark_home

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bare_python(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone") / "cluster") as running:
        yield running


def conf(**given: str) -> list[str]:
    return [word for name, value in given.items() for word in ("--conf", f"spark.{name.replace('_', '.')}={value}")]


def test_tables_are_exact_on_a_standalone_cluster_after_kills_during_batches(
    api: Api, home: Path, cluster: Standalone, python: Path
) -> None:
    given = conf(pyspark_python=str(python), executor_memory="512m", executor_extraJavaOptions=QUICK_JVM, driver_host="127.0.0.1")
    driver = Driver(api, home, ["--master", cluster.url, *given])
    with driver.running() as process:
        first = Gate(home / "gate-1")
        driver.feed(first)
        kill(first.who_came(driver, process))
        first.who_came(driver, process)
        first.open()
        driver.until_handled(process)

        second = Gate(home / "gate-2")
        driver.feed(second)
        worker = second.who_came(driver, process).parent()
        assert worker is not None
        kill(worker)
        second.who_came(driver, process)
        second.open()
        driver.until_handled(process)

        third = Gate(home / "gate-3")
        driver.feed(third)
        third.who_came(driver, process)
        kill(process)
        process.wait()
    with driver.running() as process:
        third.who_came(driver, process)
        third.open()
        driver.until_handled(process)
        driver.feed()
        driver.until_handled(process)
    driver.judge(python)


def test_tables_are_exact_on_a_local_cluster_of_executor_processes(api: Api, home: Path, python: Path) -> None:
    environment = {"SPARK_HOME": str(spark_home(home / "spark-home"))}
    given = conf(pyspark_python=str(python), executor_extraJavaOptions=QUICK_JVM, executorEnv_PYTHONPATH="")
    driver = Driver(api, home, ["--master", "local-cluster[2,1,1024]", *given], environment)
    with driver.running() as process:
        driver.feed()
        driver.until_handled(process)
    driver.judge(python)


def test_an_unreachable_master_is_reported_with_a_hint(api: Api, home: Path) -> None:
    project = Driver(api, home, []).project / "project.py"
    command = [sys.executable, "-m", "headrace", "pipeline", "-p", str(project), "--master", "spark://127.0.0.1:1"]
    given = {"HEADRACE_KEY": KEY, "HEADRACE_API_URL": api.url, "HEADRACE_HOME": str(home), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=clean_environment(**given), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "No Spark master answers at spark://127.0.0.1:1" in done.stderr
    assert "Is the master running" in done.stderr
