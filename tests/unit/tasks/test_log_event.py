from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from headrace import LogEvent
from headrace.core.matching.payloads import MAX_PATTERN_CHARS
from headrace.errors import ProjectError
from headrace.wire.task_runs import AwaitedEvent

PAID = {"status": ["paid", {"prefix": "part"}], "total": [{"numeric": [">", 100]}]}


def test_an_event_of_the_log_is_sent_with_its_pattern() -> None:
    awaited = LogEvent("orders.*", subject="A7", match=PAID).awaited()
    assert awaited == AwaitedEvent(on=["orders.*"], subject="A7", match=PAID)
    assert AwaitedEvent.model_validate_json(awaited.model_dump_json(exclude_none=True)) == awaited
    assert LogEvent(["a", "b"]).awaited() == AwaitedEvent(on=["a", "b"])
    assert LogEvent("a", match=MappingProxyType({"a": [None]})).awaited().match == {"a": [None]}


def test_an_event_of_the_log_with_a_pattern_has_a_hash() -> None:
    assert {LogEvent("orders", match=PAID), LogEvent("orders", match=dict(PAID))} == {LogEvent("orders", match=PAID)}


@pytest.mark.parametrize(
    ("match", "message"),
    [
        ({"a": {"b": [{"prefx": "x"}]}}, r"In match=, a\.b has the operator 'prefx', which does not exist"),
        ({"a": "paid"}, "In match=, a must be a list of values"),
        ({1: ["paid"]}, "In match=, the pattern has a field 1 that is not a text"),
        ({}, "In match=, the pattern must be a list of values"),
        ({"a": ["x" * MAX_PATTERN_CHARS]}, "match= has 8,010 characters as JSON"),
    ],
)
def test_an_invalid_pattern_is_refused_with_its_path(match: Any, message: str) -> None:
    with pytest.raises(ProjectError, match=message) as refused:
        LogEvent("orders", match=match).awaited()
    assert refused.value.hint


@pytest.mark.parametrize("fields", [{"on": []}, {"on": ""}, {"on": "a", "subject": ""}, {"on": 5}])
def test_an_event_without_a_name_or_with_an_empty_text_is_refused(fields: Any) -> None:
    with pytest.raises(ProjectError, match="A run cannot wait for LogEvent"):
        LogEvent(**fields).awaited()
