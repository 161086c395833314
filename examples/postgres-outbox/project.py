"""Paid orders of an outbox table in PostgreSQL, summed up by customer.

`make example-postgres` runs it on a PostgreSQL server of its own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headrace import Postgres, Project

project = Project("postgres-outbox")
outbox = Postgres("outbox", slot="shop", format="outbox", payload="body", key="customer", lane="region", progress_table="stream_progress")

CUSTOMER = "@.key"  # the column `customer`

project.watch("orders.paid", outbox, match={"status": ["paid"]}, id="$.id", subject=CUSTOMER)
project.watch("orders.refunded", outbox, match={"status": ["refunded"]}, id="$.id", follows="$.refund_of", subject=CUSTOMER)


@project.pipeline(on="orders.*", table="payments", payload="id STRING, status STRING, cents LONG")
def payments(events: DataFrame) -> DataFrame:
    """Return one row for each payment and refund. A refund comes after its payment."""
    sign = sf.when(sf.col("payload.status") == "paid", 1).otherwise(-1)
    return events.select(
        sf.col("payload.id").alias("id"),
        sf.col("subject").alias("customer"),
        sf.col("payload.status").alias("status"),
        (sign * sf.col("payload.cents")).alias("cents"),
        "mark",
        "seq",
    )
