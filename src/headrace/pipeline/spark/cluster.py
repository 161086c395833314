"""What differs where Spark runs on other machines: which masters those are, whether they can be reached, and what to do if not."""

from __future__ import annotations

import re
import socket
import threading
from typing import Final

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headrace.errors import PipelineError

PATIENCE: Final = 10.0
"""Seconds between one word of warning and the next while no executor has come."""
_CONNECT: Final = 5.0
_POLL: Final = 0.1

_HINTS: Final = {
    "spark": "Is the master running, on the same version of Spark? What it is called stands on its web page: spark://HOST:7077.",
    "yarn": "Set HADOOP_CONF_DIR to the folder with the cluster's core-site.xml and yarn-site.xml.",
    "k8s": "Name an image: --conf spark.kubernetes.container.image=…; may this account make pods in the namespace?",
}


def is_cluster(master: str) -> bool:
    """Whether the executors are processes of their own."""
    return re.fullmatch(r"local(\[[^\[\]]*\])?", master) is None


def is_remote(master: str) -> bool:
    """Whether the executors may be on other machines."""
    return not master.startswith("local")


def hint_of(master: str) -> str:
    """Return what to look at when this master gives no session."""
    return _HINTS.get(re.split(r"[:\-]", master)[0], "Is there enough memory, and does the master exist?")


def check_reachable(master: str) -> None:
    """See whether one of a standalone cluster's masters answers: Spark itself would try for a minute, and then say little.

    Raises:
        PipelineError: None of them does.
    """
    if not master.startswith("spark://"):
        return
    failures = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _CONNECT):
                return
        except (OSError, ValueError) as error:
            failures.append(f"{place}: {error.strerror or error}" if isinstance(error, OSError) else f"{place}: not HOST:PORT")
    raise PipelineError(f"No Spark master answers at {master} ({'; '.join(failures)}).", hint=hint_of(master))


def await_executors(spark: SparkSession, stop: threading.Event) -> None:
    """Wait for the first executor, or until `stop` is set, and say so where it takes long: Spark would only wait in silence.

    Raises:
        PipelineError: The cluster gave the application up.
    """
    context = spark.sparkContext
    master = str(context.master)
    if not is_cluster(master) or context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return  # none comes before there is work
    log = structlog.get_logger(__name__)
    executors = vars(context)["_jsc"].sc().statusTracker().getExecutorInfos  # PySpark's own tracker does not know the executors
    waited = 0.0
    while not stop.is_set():
        try:
            if len(executors()) > 1:  # the driver counts as one
                return
        except Py4JError as error:
            raise PipelineError(f"Spark stopped before an executor had come from {master}.", hint=hint_of(master)) from error
        stop.wait(_POLL)
        waited += _POLL
        if waited >= PATIENCE:
            waited = 0.0
            hint = "does the cluster have a free worker with the requested memory and cores, and can it reach this host?"
            log.warning("no executor has come yet", master=master, hint=hint)
