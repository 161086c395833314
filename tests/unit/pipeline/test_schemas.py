"""The columns of the DataFrame of a pipeline, which users' code names."""

from __future__ import annotations

from headrace.pipeline.schemas import EVENTS, PIPELINE_COLUMNS


def test_a_pipeline_has_these_columns_in_this_order() -> None:
    columns = [f"{name} {EVENTS[name].dataType.simpleString()}{'' if EVENTS[name].nullable else ' not null'}" for name in PIPELINE_COLUMNS]
    assert columns == [
        "position bigint not null",
        "mark string",
        "seq bigint not null",
        "source string not null",
        "id string not null",
        "type string not null",
        "subject string",
        "occurred timestamp not null",
        "received timestamp not null",
        "follows string",
        "trace string",
        "triggers array<string> not null",
        "payload string not null",
    ]
