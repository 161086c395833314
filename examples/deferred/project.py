"""Work that is done elsewhere: a run submits it, gives its place up, and goes on with the answer.

python service.py &                                          # the "elsewhere": a forecaster with an HTTP interface
headrace standalone                                          # in another terminal, in this folder
headrace task-runs start arrivals --args '{"day": "2013-01-01"}'  # waits for feed/2013-01-01.jsonl, and uses no worker for that
python feed.py 2013-01-01                                    # the file comes
headrace task-runs list                                           # forecast is deferred: it waits for the forecaster
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
from pyspark.sql import functions as F  # noqa: N812

from headrace import FileTrigger, HttpStatusTrigger, Project, Run

HERE = Path(__file__).resolve().parent
FEED = Path(os.environ.get("FEED", HERE / "feed"))
FORECASTER = os.environ.get("FORECASTER", "http://127.0.0.1:8700")

project = Project("freight")


@project.task()
def told(_run: Run, outcome: dict[str, Any]) -> None:
    """Say how a forecast went, as a mail or a chat message would."""
    with (FEED.parent / "told.txt").open("a") as file:
        file.write(f"{outcome['task']} {outcome['state']}: {outcome.get('result') or outcome['error']}\n")


@project.task(spark=True, on_success=told, on_failure=told)
def forecast(run: Run, day: str) -> None:
    """Sum a day's legs up with Spark, hand them to the forecaster, and give the place up until it is done."""
    work = run.tables.parent / "forecasts" / run.id
    legs = run.spark.read.schema("origin string, dest string, minutes double").json(str(FEED / f"{day}.jsonl"))
    lanes = legs.groupBy("origin", "dest").agg(F.count("*").alias("legs"), F.avg("minutes").alias("minutes"))
    lanes.coalesce(1).write.mode("overwrite").json(str(work / "lanes"))
    # The name makes it one job however often this is done: a worker may die right after it.
    answer = httpx.put(f"{FORECASTER}/jobs/{run.id}", json={"lanes": str(work / "lanes"), "answer": str(work / "answer.json")})
    answer.raise_for_status()
    done = HttpStatusTrigger(f"{FORECASTER}/jobs/{run.id}", match={"state": ["done"]}, fail={"state": ["failed"]}, interval=0.5)
    run.defer(trigger=done, method_name="collect", kwargs={"day": day}, timeout=3600)


@forecast.method
def collect(run: Run, event: dict[str, Any], day: str) -> dict[str, Any]:
    """Read the forecaster's answer with Spark and write it as the day's part of a table."""
    answer = run.spark.read.schema("origin string, dest string, expected double").json(event["body"]["answer"])
    answer.write.mode("overwrite").parquet(str(run.tables / "forecasts" / f"day={day}"))
    return {"day": day, "lanes": answer.count()}


@project.task(start_deferred=lambda day: FileTrigger(FEED / f"{day}.jsonl"), start_timeout=24 * 3600)
def arrivals(_run: Run, event: dict[str, Any], day: str) -> dict[str, Any]:
    """Start the forecast of a day, once its file has come."""
    return {"file": event["path"], "forecast": forecast.start(day=day)}
