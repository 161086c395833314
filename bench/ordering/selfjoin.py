"""The peer of a replay: causal order by self-joins in Spark SQL, without Headrace.

Each round joins the history with itself and doubles the distance to the leader that each event refers to. The conditions favour the
peer: no copies, no cycles, no position column, and rounds in memory.
"""

from __future__ import annotations

from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf


def order(spark: SparkSession, source: Path, out: Path, shuffles: int) -> None:
    """Write the history in order of (eff, depth, occurred, id)."""
    before = spark.conf.get("spark.sql.shuffle.partitions") or "2"
    spark.conf.set("spark.sql.shuffle.partitions", str(shuffles))
    try:
        ordered = _with_depth(spark.read.parquet(str(source)))
        ordered.orderBy("eff", "depth", "occurred", "id").select("id", "follows", "occurred").write.parquet(str(out))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
        spark.catalog.clearCache()


def _with_depth(history: DataFrame) -> DataFrame:
    rows = history.select(
        "id",
        "follows",
        "occurred",
        sf.col("follows").alias("up"),
        sf.col("occurred").alias("eff"),
        sf.when(sf.col("follows").isNull(), 0).otherwise(1).alias("depth"),
    )
    while True:
        above = rows.select(
            sf.col("id").alias("up"), sf.col("up").alias("next"), sf.col("eff").alias("above_eff"), sf.col("depth").alias("above_depth")
        )
        rows = (
            rows.join(above, "up", "left")
            .select(
                "id",
                "follows",
                "occurred",
                sf.col("next").alias("up"),
                sf.greatest("eff", "above_eff").alias("eff"),
                (sf.col("depth") + sf.coalesce("above_depth", sf.lit(0))).alias("depth"),
            )
            .persist(StorageLevel.MEMORY_AND_DISK)
        )
        if rows.where(sf.col("up").isNotNull()).limit(1).count() == 0:
            return rows
