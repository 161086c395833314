from __future__ import annotations

import pyarrow as pa

from headrace.pipeline.blocks import pack
from headrace.pipeline.routing import route
from headrace.pipeline.schemas import INDEX_SCHEMA, TRIGGER_SEPARATOR
from headrace.project import Project


def index(*rows: tuple[int, list[str]]) -> bytes:
    triggers = pa.array([TRIGGER_SEPARATOR.join(names) for _, names in rows]).dictionary_encode()
    return pack(pa.table([pa.array([seq for seq, _ in rows]), triggers], schema=INDEX_SCHEMA))


def project(**on: str) -> Project:
    made = Project("tests")
    for name, pattern in on.items():
        made.pipeline(on=pattern, name=name)(lambda events: None)
    return made


def test_each_pipeline_gets_its_slice_with_seqs_as_closed_ranges() -> None:
    rows = [(5, ["legs.a"]), (1, ["legs.a", "legs.b"]), (2, ["other"]), (3, ["legs.b"]), (6, ["legs.a"]), (7, ["legs.b"])]
    legs, only_b = route(index(*rows), project(legs="legs.*", only_b="legs.b", never="no.*").pipelines.values())
    assert (legs.pipeline.name, legs.events, legs.seqs) == ("legs", 5, [(1, 1), (3, 3), (5, 7)])
    assert legs.triggers == ("legs.a", "legs.b")
    assert (only_b.triggers, only_b.events, only_b.seqs) == (("legs.b",), 3, [(1, 1), (3, 3), (7, 7)])


def test_a_slice_that_is_the_whole_batch_needs_no_selection() -> None:
    (every,) = route(index((1, ["a"]), (2, ["b"])), project(every="*").pipelines.values())
    assert (every.triggers, every.seqs) == (None, [(1, 2)])


def test_events_without_a_trigger_go_nowhere() -> None:
    assert route(index((1, []), (2, [])), project(every="*").pipelines.values()) == []
