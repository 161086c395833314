"""`headrace standalone` with tables in a bucket: the driver is killed, and the tables are exact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from headrace.pipeline.table_storage.object_folder import ObjectFolder
from headrace.pipeline.tables.delta.log import LOG
from support.pipelines.bucket_tables import bucket_tables, delta_table
from support.processes import versitygw
from support.processes.deployment import KEY, lifeline, until
from support.processes.ports import free_port

pytestmark = [pytest.mark.acceptance, pytest.mark.spark, pytest.mark.brokers, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(300)]

PROJECT = """
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace import Directory, Project

project = Project("shop")
project.watch("orders.all", Directory("feed", pattern="*.jsonl"), id="$.n")


@project.pipeline(on="orders.*", table="orders", format="delta", payload="n long, customer long")
def orders(events: DataFrame) -> DataFrame:
    return events.select("position", "payload.n")


@project.pipeline(on="orders.*", table="spent", key="customer", columns="customer long, n long", payload="n long, customer long")
def spent(events: DataFrame, rows: DataFrame) -> DataFrame:
    return events.select("payload.customer", "payload.n").unionByName(rows).groupBy("customer").agg(F.sum("n").alias("n"))
"""
CUSTOMERS = 5
ORDERS = 3_000


def test_tables_in_a_bucket_are_exact_after_the_driver_of_standalone_is_killed(tmp_path: Path) -> None:
    """The connection is in the API, and no process has credentials in its environment."""
    (tmp_path / "project.py").write_text(PROJECT)
    (tmp_path / "feed").mkdir()
    with bucket_tables() as tables:
        port = free_port()
        place = str(tables).replace(tables.connection, "warehouse")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")} | {
            "HEADRACE_HOME": str(tmp_path / "home"),
            "HEADRACE_PORT": f"{port}",
            "HEADRACE_KEY": KEY,
            "HEADRACE_TABLES": place,
            "HEADRACE_MASTER": "local[2]",
        }

        def headrace(*arguments: str, text: str = "") -> str:
            command = [sys.executable, "-m", "headrace", *arguments]
            ended = subprocess.run(
                command, input=text, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
            )
            assert ended.returncode == 0, ended.stderr
            return ended.stdout

        def drivers() -> list[psutil.Process]:
            return [each for each in psutil.Process(process.pid).children(recursive=True) if "pipeline" in command_line(each)]

        with (tmp_path / "standalone.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "standalone"], stdin=lifeline(), stdout=log, stderr=log, env=environment, cwd=tmp_path
            )
        try:
            until(lambda: answers(port), "the api answers")
            headrace("connections", "set", "warehouse", text=f"{versitygw.shared().connection}\n")
            feed(tmp_path, 0, ORDERS // 2)
            until(lambda: tables.folders() and rows(tables, "orders"), "the first rows are stored")
            (driver,) = drivers()
            feed(tmp_path, ORDERS // 2, ORDERS)
            driver.send_signal(signal.SIGKILL)
            until(
                lambda: (
                    len(rows(tables, "orders")) >= ORDERS and sum(row["n"] for row in rows(tables, "spent")) >= ORDERS * (ORDERS - 1) // 2
                ),
                "all is stored",
            )
            assert drivers()[0].pid != driver.pid
            assert sorted(row["n"] for row in rows(tables, "orders")) == list(range(ORDERS))
            assert {row["customer"]: row["n"] for row in rows(tables, "spent")} == {
                customer: sum(range(customer, ORDERS, CUSTOMERS)) for customer in range(CUSTOMERS)
            }
            listed = json.loads(headrace("tables", "list", "--json"))["tables"]
            assert {table["name"]: table["rows"] for table in listed} == {"orders": ORDERS, "spent": CUSTOMERS}
            assert json.loads(headrace("audit", "--tables", place, "--json"))["clean"]
            assert not (tmp_path / "home" / "tables").exists()
        finally:
            process.terminate()
            process.wait(60)
    secret = "testtest"
    assert not [path for path in tmp_path.rglob("*.log") if secret in path.read_text(errors="replace")]


def answers(port: int) -> bool:
    """Return whether the api answers."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False, verify=False).is_success
    except httpx.TransportError:
        return False


def rows(tables: ObjectFolder, name: str) -> list[dict[str, int]]:
    """Return the rows of a table that may not exist yet."""
    if f"{0:020}.json" not in tables.names(f"{name}/{LOG}"):
        return []
    stored: list[dict[str, int]] = delta_table(tables / name).to_pyarrow_table().to_pylist()
    return stored


def feed(folder: Path, begin: int, end: int) -> None:
    """Put a file of orders into the folder."""
    draft = folder / "draft"
    draft.write_text("".join(f"{json.dumps({'n': n, 'customer': n % CUSTOMERS})}\n" for n in range(begin, end)))
    draft.rename(folder / "feed" / f"{begin:06}.jsonl")


def command_line(process: psutil.Process) -> list[str]:
    """Return the command line of a process. It is empty if the process has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
