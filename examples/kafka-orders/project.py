"""Paid orders of a Kafka topic, summed up by customer.

`make example-kafka` runs it on a Kafka server of its own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headrace import Kafka, Project

project = Project("kafka-orders")
orders = Kafka("orders", connection="kafka", group="kafka-orders")

SHOP = "@.headers.shop"  # a header of the message
CUSTOMER = "@.key"  # its key

project.watch("orders.paid", orders, match={"status": ["paid"]}, id="$.id", subject=CUSTOMER, source=SHOP)
project.watch("orders.refunded", orders, match={"status": ["refunded"]}, id="$.id", follows="$.refund_of", subject=CUSTOMER, source=SHOP)


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
