"""Orders of objects that land in a bucket, one row for each paid order.

`make example-s3` runs it on an S3 server of its own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headrace import ObjectStore, Project

project = Project("s3-landing")
landing = ObjectStore("s3://landing/orders", pattern="*.jsonl", read="lines", interval=1)

OBJECT = "@.key"  # the key of the object

project.watch("orders.paid", landing, match={"status": ["paid"]}, id="$.id", subject=OBJECT)


@project.pipeline(on="orders.paid", table="paid", payload="id STRING, customer STRING, cents LONG")
def paid(events: DataFrame) -> DataFrame:
    """Return one row for each paid order, with the object that it came from."""
    return events.select(
        sf.col("payload.id").alias("id"),
        sf.col("payload.customer").alias("customer"),
        sf.col("payload.cents").alias("cents"),
        sf.col("subject").alias("object"),
        "seq",
    )
