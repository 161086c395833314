from __future__ import annotations

import pyarrow as pa

from headrace.pipeline.runs.routing import route
from headrace.project import Project


def rows(triggers: list[list[str]], **on: str) -> list[list[int]]:
    made = Project("tests")
    for name, pattern in on.items():
        made.pipeline(on=pattern, name=name)(lambda events: None)
    column = pa.chunked_array([pa.array(triggers, pa.list_(pa.string()))])
    return [found.tolist() for found in route(column, list(made.pipelines.values()))]


def test_each_pipeline_gets_the_rows_of_its_triggers() -> None:
    triggers = [["legs.a"], ["legs.a", "legs.b"], ["other"], ["legs.b"]]
    assert rows(triggers, legs="legs.*", only_b="legs.b", never="no.*") == [[0, 1, 3], [1, 3], []]


def test_events_without_a_trigger_go_to_no_pipeline() -> None:
    assert rows([[], ["a"]], every="*") == [[1]]
    assert rows([], every="*") == [[]]
