"""Support for Spark on other hosts: detect such masters, check that they are reachable, and give hints."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Mapping
from typing import Final

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headrace.errors import PipelineError

WARNING_SECONDS: Final = 10.0
"""Interval between warnings while no executor has registered."""
_CONNECT_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.1

_HINTS: Final = {
    "spark": "Is the master running, on the same version of Spark? What it is called stands on its web page: spark://HOST:7077.",
    "yarn": "Set HADOOP_CONF_DIR to the folder with the cluster's core-site.xml and yarn-site.xml.",
    "k8s": "Name an image: --conf spark.kubernetes.container.image=…; may this account make pods in the namespace?",
}


def is_cluster(master: str) -> bool:
    """Return whether the executors are separate processes."""
    return re.fullmatch(r"local(\[[^\[\]]*\])?", master) is None


def is_remote(master: str) -> bool:
    """Return whether the executors may be on other hosts."""
    return not master.startswith("local")


def hint_of(master: str) -> str:
    """Return what to check if this master gives no session."""
    return _HINTS.get(re.split(r"[:\-]", master)[0], "Is there enough memory, and does the master exist?")


def check_classic(master: str, conf: Mapping[str, str]) -> None:
    """Check that no server of Spark Connect is chosen: its sessions have no `SparkContext`.

    Raises:
        PipelineError: The master, the configuration or the environment names one.
    """
    chosen = {
        "the master": master if master.startswith("sc://") else None,
        "spark.remote": conf.get("spark.remote"),
        "the variable SPARK_REMOTE": os.environ.get("SPARK_REMOTE"),
    }
    for name, value in chosen.items():
        if value:
            raise PipelineError(
                f"Pipelines do not run on Spark Connect, which {name} chooses ({value}): it has no SparkContext.",
                hint="Name the cluster itself, such as spark://HOST:7077, yarn or k8s://HOST, and remove spark.remote and SPARK_REMOTE.",
            )


def check_reachable(master: str) -> None:
    """Check that one of a standalone cluster's masters answers. Spark itself would try for a minute, with a poor error message.

    Raises:
        PipelineError: None of them answers.
    """
    if not master.startswith("spark://"):
        return
    failures = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS):
                return
        except (OSError, ValueError) as error:
            failures.append(f"{address}: {error.strerror or error}" if isinstance(error, OSError) else f"{address}: not HOST:PORT")
    raise PipelineError(f"No Spark master answers at {master} ({'; '.join(failures)}).", hint=hint_of(master))


def await_executors(spark: SparkSession, stop: threading.Event) -> None:
    """Wait for the first executor or until `stop` is set, and log a warning while it takes long, since Spark does not.

    Raises:
        PipelineError: The cluster has ended the application.
    """
    context = spark.sparkContext
    master = str(context.master)
    if not is_cluster(master) or context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return  # executors start with the first job
    log = structlog.get_logger(__name__)
    executors = vars(context)["_jsc"].sc().statusTracker().getExecutorInfos  # PySpark's own tracker does not know the executors
    waited = 0.0
    while not stop.is_set():
        try:
            if len(executors()) > 1:  # the driver counts as one
                return
        except Py4JError as error:
            raise PipelineError(f"Spark stopped before an executor had come from {master}.", hint=hint_of(master)) from error
        stop.wait(_POLL_SECONDS)
        waited += _POLL_SECONDS
        if waited >= WARNING_SECONDS:
            waited = 0.0
            hint = "does the cluster have a free worker with the requested memory and cores, and can it reach this host?"
            log.warning("no executor registered yet", master=master, hint=hint)
