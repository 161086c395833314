"""Events that fail in a pipeline: each becomes its own dead letter, and the other events are stored in the table."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace.project import Project
from support.pipelines.kit import Api, leg
from support.pipelines.run import running, table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

EVENTS = 24


def project_of_two() -> Project:
    """Return a project whose pipeline `checked` fails on some events, and whose pipeline `plain` reads nothing of them."""
    project = Project("flights")

    @project.pipeline(on="legs.*", table="checked", attempts=2)
    def checked(events: DataFrame) -> DataFrame:
        def check(n):  # type: ignore[no-untyped-def]  # Spark infers nothing from `int | None`
            if n == 3:
                raise ValueError("a lone surrogate: \ud800")
            if n == 5:
                raise SystemExit("not by me")
            if n == 7:
                os._exit(9)
            return n

        return events.select("id", fn.udf(check, "long")("payload.n").alias("n"))

    @project.pipeline(on="legs.*", table="plain", payload="other string")
    def plain(events: DataFrame) -> DataFrame:
        return events.select("id")

    return project


def test_each_poisoned_event_becomes_its_own_dead_letter(api: Api, home: Path, spark: SparkSession) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    events = [leg(f"e{n:02}", trigger, n=n) for n in range(EVENTS)]
    events[11] = replace(events[11], payload='{"n": 1e400}')
    api.feed(events)
    with running(project_of_two(), options, spark) as run:
        run.until_handled(api, EVENTS)
        letters = {tuple(letter.seqs): letter for letter in api.store.pipeline_dead_letters.page(limit=99).dead_letters}
    said = {seqs[0][0] - 1: letter.error for seqs, letter in letters.items()}
    assert {seqs: letter.pipeline for seqs, letter in letters.items()} == {((n + 1, n + 1),): "checked" for n in (3, 5, 7, 11)}
    assert "1e400, which no double holds" in said[11]
    assert sorted(row["id"] for row in table(options, "checked")) == [f"e{n:02}" for n in range(EVENTS) if n not in {3, 5, 7, 11}]
    assert len(table(options, "plain")) == EVENTS
