"""A project on YARN with tables in a bucket: the executors belong to another user, and share no folder with the driver."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pipelines.bucket_tables import table_location, true_folder
from support.pipelines.kit import Api
from support.processes import versitygw
from support.processes.broker_server import connection_variable
from support.processes.spark_cluster import QUICK_JVM, SPARK, Driver, Gate, kill
from support.processes.yarn_cluster import USER, Yarn, copy_python, libraries_of, open_folder, require

pytestmark = [pytest.mark.spark, pytest.mark.brokers, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(500)]


@pytest.fixture
def shared() -> Iterator[Path]:
    """Return a folder that both users can use: the test talks to its tasks there."""
    folder = open_folder("shared")
    yield folder
    shutil.rmtree(folder)


def test_tables_in_a_bucket_are_exact_on_yarn_after_a_kill_of_an_executor(api: Api, home: Path, shared: Path) -> None:
    versitygw.require()
    python = copy_python(shared / "python")
    require(python)
    home.chmod(0o700)
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.executor.instances": "1",
        "spark.executorEnv.LD_LIBRARY_PATH": str(libraries_of(python)),
        "spark.executor.memory": "512m",
        "spark.pyspark.python": str(python),
        "spark.yarn.am.extraJavaOptions": QUICK_JVM,
        "spark.yarn.jars": f"local:{SPARK}/jars/*",
    }
    with Yarn() as yarn, table_location() as location:
        arguments = ["--master", "yarn", "--tables", str(location), *(word for item in conf.items() for word in ("--conf", "=".join(item)))]
        variable = connection_variable(location.connection)
        driver = Driver(api, home, arguments, {**yarn.environment, "PYTHONPATH": "", variable: os.environ[variable]}, true_folder(location))
        with driver.running() as process:
            gate = Gate(shared / "gate")
            shutil.chown(gate.folder, USER, "nogroup")
            driver.feed(gate)
            executor = gate.who_came(driver, process)
            assert executor.username() == USER
            kill(executor)
            gate.who_came(driver, process)
            gate.open()
            driver.until_handled(process)
            driver.feed()
            driver.until_handled(process)
        driver.judge(python)
        assert not (home / "tables").exists()
