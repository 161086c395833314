"""The Spark session of a pipeline process."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import PipelineError
from headrace.pipeline.spark.class_archive import archive_options
from headrace.pipeline.spark.cluster import check_classic, check_reachable, hint_of, is_cluster, is_remote
from headrace.pipeline.spark.code_shipping import PYTHON_DAEMON, let_workers_start, send_to_executors
from headrace.pipeline.spark.errors import summary
from headrace.pipeline.spark.java import find_java
from headrace.pipeline.spark.jvm_watch import JvmWatch

HEAP: Final = "640m"
LONG_HEAP: Final = "1g"

_JVM: Final = (
    # One compiler tier and one collector thread: starts in half the time and stays small.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:MaxMetaspaceSize=256m",
    "-XX:ReservedCodeCacheSize=96m",
    "-XX:MaxDirectMemorySize=256m",
    "-Xshare:auto",
    # Spark strips comments from generated code with a recursive regular expression, which sometimes exceeds the default
    # of 1 MiB.
    "-Xss16m",
    # Without memory some of its threads would end while others wait for them.
    "-XX:+ExitOnOutOfMemoryError",
    "-Duser.timezone=UTC",
)

_LONG_JVM: Final = tuple(option for option in _JVM if not option.startswith(("-XX:TieredStopAtLevel", "-XX:ReservedCodeCacheSize")))

_LOGGING: Final = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}}{{UTC}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""

_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Larger tables go to tasks as Arrow batches. Spark would otherwise put them into the plan, and evaluate them row by
    # row.
    "spark.sql.execution.arrow.localRelationThreshold": "1048576",
    "spark.python.daemon.module": PYTHON_DAEMON,
    "spark.python.worker.faulthandler.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
}

_HERE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@contextmanager
def open_session(
    app: str,
    *,
    master: str,
    work: Path,
    conf: Mapping[str, str] | None = None,
    folders: Sequence[Path] = (),
    is_batch: bool = False,
    class_options: Sequence[str] | None = None,
) -> Iterator[SparkSession]:
    """Open a session whose logs, scratch files and generated Java home are under `work`; it is stopped at the end.

    `conf` is the user's configuration, which has precedence. The modules in `folders` are sent to the executors of a
    cluster. `is_batch`: the session runs long enough for the JVM to optimise, and needs more memory than a stream of
    small batches. `class_options` are options of Java that replace those of the class archive.

    Raises:
        JavaError: No Java 17 or newer.
        PipelineError: The master cannot be reached, or gives no session, or is one of Spark Connect.
    """
    conf = conf or {}
    check_classic(master, conf)
    check_reachable(master)
    work.mkdir(parents=True, exist_ok=True)
    java_home = find_java(work)
    os.environ["JAVA_HOME"] = str(java_home)
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # with one arena per thread, the JVM grows by hundreds of megabytes
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    let_workers_start()
    os.environ["PYSPARK_PYTHON"] = _executors_python(master, conf)
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)  # it would log a failed batch a second time, at length
    builder = SparkSession.Builder().appName(app).master(master)
    class_options = archive_options(java_home) if class_options is None else class_options
    for name, value in {**_configuration(master, work, class_options, is_batch=is_batch), **conf}.items():
        builder = builder.config(name, value)
    spark = _started(builder, master, work)
    with JvmWatch(spark.sparkContext):
        try:
            # in a cluster's own driver there is a session already, whatever the options say
            if is_cluster(str(spark.sparkContext.master)):
                send_to_executors(spark.sparkContext, folders, work)
            yield spark
        finally:
            with suppress(OSError, Py4JError):  # a JVM that died cannot be stopped, and the error that ended it is the one to report
                spark.stop()


def _executors_python(master: str, conf: Mapping[str, str]) -> str:
    """Return the executors' Python: this one on this host, else the configured one, else `python3` on their PATH."""
    chosen = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    if is_remote(master):
        return chosen or "python3"
    return chosen if chosen and is_cluster(master) else sys.executable


def _started(builder: SparkSession.Builder, master: str, work: Path) -> SparkSession:
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise PipelineError(
            f"Spark does not start on {master}: {summary(error)}", hint=f"See {work / 'spark.log'}. {hint_of(master)}"
        ) from error


def cores_of(master: str) -> int:
    """Return how many tasks a local master runs concurrently, or 2 for a cluster, whose cores are unknown."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if local is None:
        return 2
    if local[1] == "*":
        return os.cpu_count() or 2
    return int(local[1] or 1)


def _configuration(master: str, work: Path, class_options: Sequence[str], *, is_batch: bool) -> dict[str, str]:
    cores = str(cores_of(master))
    here = {} if is_remote(master) else {**_HERE, "spark.default.parallelism": cores, "spark.local.dir": str(work / "scratch")}
    log4j = work / "log4j2.properties"
    log4j.write_text(_LOGGING.format(log=work / "spark.log"))
    return {
        **_CONF,
        **here,
        "spark.driver.memory": LONG_HEAP if is_batch else HEAP,
        # With Spark's default of 200, grouping a small batch takes seconds.
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.driver.extraJavaOptions": " ".join(
            [*(_LONG_JVM if is_batch else _JVM), *class_options, f"-Dlog4j2.configurationFile={log4j.absolute().as_uri()}"]
        ),
    }
