from __future__ import annotations

from pathlib import Path

import pytest

from headrace import Kafka, Memory
from headrace.errors import HeadraceError, ProjectError, StreamError, UpstreamError
from headrace.triggers.upstream import load_upstream, name_connection
from support.sources.streams import MemoryUpstream


def test_an_upstream_is_restored_from_its_serialized_form() -> None:
    upstream = MemoryUpstream("orders")
    again = load_upstream(*upstream.serialize())
    assert isinstance(again, MemoryUpstream)
    assert again.stream_key() == upstream.stream_key() == "orders"
    assert upstream.source == "headrace:orders"
    assert upstream.relative_to(Path("/")) is upstream


@pytest.mark.parametrize(
    "classpath",
    [
        "nowhere.at.all.Upstream",
        "support.sources.streams.Nothing",
        "Bare",
        "",
        "support.sources.streams.Feed",
        "support.sources.streams.until",
    ],
)
def test_a_class_path_that_is_not_an_upstream_is_rejected(classpath: str) -> None:
    with pytest.raises(ProjectError, match="upstream"):
        load_upstream(classpath, {})


def test_invalid_arguments_of_an_upstream_are_named() -> None:
    with pytest.raises(ProjectError, match="colour"):
        load_upstream("support.sources.streams.MemoryUpstream", {"colour": 1})


@pytest.mark.parametrize(
    ("hint", "named"),
    [
        ("Correct the password of the connection.", "Correct the password of the connection. The connection is 'orders'."),
        ("Create the topic.", "Create the topic."),
        ("Correct the connection: headrace connections set registry", "Correct the connection: headrace connections set registry"),
        (None, None),
    ],
)
def test_a_hint_to_correct_the_connection_names_it_once(hint: str | None, named: str | None) -> None:
    cause, end = UpstreamError("Login refused.", hint=hint), StreamError("The lane could not be advanced.")
    end.__cause__ = cause
    for _ in range(2):
        name_connection(end, Kafka("paid", connection="orders", group="shop").producer())
    assert (cause.hint, end.hint) == (named, None)


def test_errors_of_other_producers_stay_as_they_are() -> None:
    error = HeadraceError("Login refused.", hint="Correct the connection.")
    name_connection(error, None)
    name_connection(error, Memory("orders").producer())
    name_connection(ValueError("wrong"), Kafka("paid", connection="orders", group="shop").producer())
    assert error.hint == "Correct the connection."
