"""How much of a flight's delay came in with its aircraft? Every departure from New York in 2013, in the order the aircraft flew them.

Reports arrive by station, late and out of order. Each names the aircraft's previous departure, which it `follows`; Headrace hands
a departure on only after the one it follows.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace import Directory, Project

AIRLINES = {
    "9E": "endeavor",
    "AA": "american",
    "AS": "alaska",
    "B6": "jetblue",
    "DL": "delta",
    "EV": "expressjet",
    "F9": "frontier",
    "FL": "airtran",
    "HA": "hawaiian",
    "MQ": "envoy",
    "OO": "skywest",
    "UA": "united",
    "US": "us_airways",
    "VX": "virgin",
    "WN": "southwest",
    "YV": "mesa",
}
DESTINATIONS = ("ATL", "BOS", "LAX", "ORD", "SFO")

LEG = """
    leg_id STRING, previous_leg_id STRING, tail_number STRING, carrier STRING, flight INT, origin STRING, dest STRING,
    scheduled TIMESTAMP, departed_at TIMESTAMP, dep_delay INT, arr_delay INT, cancelled BOOLEAN, distance INT
"""
DELAYED = 15  # minutes, as the airlines count it

project = Project("flights")
reports = Directory("feed", pattern="*.jsonl")


def watch(name: str, match: dict[str, list[str]]) -> None:
    """Watch the reports that match. One that both an airline's and a destination's watch want is stored once, with two firings."""
    project.watch(
        name,
        reports,
        match=match,
        id="$.leg_id",
        follows="$.previous_leg_id",
        subject="$.tail_number",
        occurred="$.departed_at",
        type="flights.departed",
    )


for carrier, airline in AIRLINES.items():
    watch(f"legs.{airline}", {"carrier": [carrier]})
for destination in DESTINATIONS:
    watch(f"dest.{destination}", {"dest": [destination]})


@project.pipeline(on="legs.*", table="knock_on_delay", payload=LEG)
def knock_on_delay(legs: DataFrame) -> DataFrame:
    """One row for each departure: its delay, that of the aircraft's previous departure, and how much of the one was the other already.

    The previous departure is in this batch or in what earlier batches wrote. It is there because departures come in order:
    without the order the look-up would now and then find nothing, and the row would be wrong for ever.
    """
    fields = ("leg_id", "previous_leg_id", "tail_number", "carrier", "dep_delay")
    departures = legs.select("position", "mark", "seq", *[f"payload.{field}" for field in fields])
    known = departures.select("leg_id", "dep_delay").union(written(legs.sparkSession))
    previous = known.groupBy(sf.col("leg_id").alias("previous_leg_id")).agg(sf.first("dep_delay").alias("previous_delay"))
    both = sf.col("dep_delay").isNotNull() & sf.col("previous_delay").isNotNull()
    already = sf.greatest(sf.lit(0), sf.least("dep_delay", "previous_delay"))
    return departures.join(previous, "previous_leg_id", "left").select(
        "leg_id",
        "previous_leg_id",
        "tail_number",
        "carrier",
        "dep_delay",
        "previous_delay",
        sf.when(both, already).alias("knocked_on"),
        "position",
        "mark",
        "seq",
    )


@project.pipeline(
    on="legs.*",
    table="hourly_board",
    key={"hour": "date_trunc('hour', payload.scheduled)", "origin": "payload.origin"},
    columns="hour timestamp, origin string, departures long, cancelled long, delayed long, delay_minutes long",
    payload=LEG,
)
def hourly_board(legs: DataFrame, rows: DataFrame) -> DataFrame:
    """One row for each scheduled hour and airport: the sums of these departures are added to the row so far, in `rows`."""
    delay = sf.col("payload.dep_delay")
    added = legs.select(
        sf.date_trunc("hour", "payload.scheduled").alias("hour"),
        "payload.origin",
        sf.lit(1).alias("departures"),
        sf.col("payload.cancelled").cast("int").alias("cancelled"),
        sf.coalesce((delay >= DELAYED).cast("int"), sf.lit(0)).alias("delayed"),
        sf.coalesce(delay, sf.lit(0)).alias("delay_minutes"),
    )
    sums = [sf.sum(name).alias(name) for name in ("departures", "cancelled", "delayed", "delay_minutes")]
    return added.unionByName(rows).groupBy("hour", "origin").agg(*sums)


def written(spark: SparkSession) -> DataFrame:
    """Return `leg_id, dep_delay` of what earlier batches wrote. A batch that runs again may see its own rows: they are equal."""
    schema = "leg_id STRING, dep_delay INT"
    tables = spark.conf.get("spark.headrace.tables", None) or str(Path(__file__).parent / "tables")
    table = Path(tables) / "knock_on_delay"
    if not table.exists():
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("recursiveFileLookup", "true").parquet(str(table))
