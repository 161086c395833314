"""Write the archive of Spark's classes. Java writes it at the end of a session that has loaded the classes of pipelines."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as fn

from headrace.errors import JavaError, PipelineError, ResourceError
from headrace.pipeline.spark.class_archive import QUIET, class_archive
from headrace.pipeline.spark.java import find_java
from headrace.pipeline.spark.session import open_session

EXIT_SECONDS: Final = 300.0
"""Limit for the end of the JVM, which writes the archive then."""


def create_class_archive(work: Path) -> Path:
    """Run a small batch in Spark, and write the archive of the classes that it loads. Return its path.

    Raises:
        JavaError: There is no Java 17 or newer, or it cannot write an archive.
        ResourceError: The virtual environment cannot be written.
        PipelineError: Spark does not start.
    """
    java_home = find_java(work)
    _create_base_archive(java_home)
    archive = class_archive(java_home)
    draft = archive.with_suffix(".part")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
    except OSError as error:
        raise ResourceError(
            f"The archive cannot be written to {archive.parent}: {error.strerror}.", hint="Run this as the owner of the environment."
        ) from error
    options = (f'"-XX:ArchiveClassesAtExit={draft}"', *QUIET)
    with open_session("prepare", master="local[1]", work=work, class_options=options) as spark:
        _run_batch(spark, work)
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001  pyspark does not publish the process that it started
    process = getattr(gateway, "proc", None)
    if process is None:
        raise PipelineError("Spark did not start a JVM of its own.", hint="Unset PYSPARK_GATEWAY_PORT.")
    gateway.shutdown()
    process.stdin.close()
    try:
        process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if not draft.is_file():
        raise JavaError(
            f"The Java in {java_home} has not written an archive: it ended with {process.returncode}.",
            hint="Spark runs without it, and starts more slowly. A Java of your system may support it: set JAVA_HOME.",
        )
    draft.replace(archive)
    return archive


def _create_base_archive(java_home: Path) -> None:
    """Write the archive of Java's own classes, on which that of Spark builds, if this Java comes without it."""
    server = java_home / "lib" / "server"
    if server.is_dir() and not (server / "classes.jsa").exists():
        command = [str(java_home / "bin" / "java"), "-Xshare:dump"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=EXIT_SECONDS, check=False)  # noqa: S603
        if answer.returncode != 0:
            raise JavaError(
                f"The Java in {java_home} cannot write an archive of its own classes: {(answer.stdout + answer.stderr).strip()[-500:]}",
                hint="Run this as the owner of that Java, or set JAVA_HOME to another one.",
            )


def _run_batch(spark: SparkSession, work: Path) -> None:
    """Use what pipelines use: Arrow, JSON, windows, joins, aggregates, Python functions, and Parquet in both directions."""
    rows = spark.createDataFrame(pa.table({"n": list(range(100)), "text": ['{"amount": 1.5, "at": "2026-01-01T00:00:00Z"}'] * 100}))
    parsed = rows.withColumn("payload", fn.from_json("text", "amount double, at timestamp")).withColumn("key", fn.col("n") % 7)
    ranked = parsed.withColumn("rank", fn.row_number().over(Window.partitionBy("key").orderBy(fn.desc("n"))))
    doubled = fn.udf(lambda n: 2 * n, "long")
    sums = ranked.groupBy("key").agg(fn.sum("payload.amount").alias("amount"), fn.count("*").alias("rows"))
    joined = ranked.join(sums, "key").select("key", "n", "amount", "payload.at", doubled("n").alias("twice"))
    table = str(work / "table")
    joined.write.mode("overwrite").partitionBy("key").parquet(table)
    read = spark.read.parquet(table)
    read.createOrReplaceTempView("prepared")
    spark.sql("SELECT key, max(twice) FROM prepared WHERE n > 3 GROUP BY key ORDER BY key").toArrow()
    read.mapInArrow(lambda batches: batches, read.schema).unionByName(read).distinct().collect()
