"""Arguments of an object store, and the objects that it selects."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.objects.location import Selection, StoredObject, parse_location
from headrace.sources.objects.upstream import ObjectStore
from headrace.sources.sqs.upstream import SQS
from headrace.triggers.upstream import load_upstream


@pytest.mark.parametrize(
    ("location", "arguments", "message"),
    [
        ("landing", {}, "Invalid location"),
        ("gs://landing", {}, "Invalid location"),
        ("s3://user:secret@landing", {}, "Invalid location"),
        ("s3://landing:90/x", {}, "Invalid location"),
        ("s3:///x", {}, "Invalid location"),
        ("s3://b", {"pattern": "a/*"}, "Invalid pattern"),
        ("s3://b", {"pattern": ""}, "Invalid pattern"),
        ("s3://b", {"read": "rows"}, "Invalid read"),
        ("s3://b", {"decode": "text"}, "Invalid decode"),
        ("s3://b", {"read": "lines", "decode": "sns"}, "Invalid decode"),
        ("s3://b", {"connection": ""}, "Invalid connection"),
        ("s3://b", {"interval": 0}, "Invalid interval"),
        ("s3://b", {"interval": True}, "Invalid interval"),
        ("s3://b", {"interval": float("nan")}, "Invalid interval"),
        ("s3://b", {"interval": None}, "Neither listings nor notifications"),
        ("s3://b", {"notifications": "queue"}, "Invalid notifications"),
        ("s3://b", {"notifications": SQS("queue")}, "does not decode"),
        ("s3://b", {"state": "folder"}, "Invalid location"),
    ],
)
def test_invalid_arguments_are_refused(location: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UpstreamError, match=message):
        ObjectStore(location, **arguments)


def test_it_is_serialised_with_its_queue() -> None:
    upstream = ObjectStore("s3://b/in/", pattern="*.jsonl", read="lines", notifications=SQS("q", decode=("sns", "s3")), state="s3://c/x")
    again = load_upstream(*upstream.serialize())
    assert again.serialize() == upstream.serialize()
    assert (again.stream_key(), again.event_type) == ("objects:s3/s3://b/in/*.jsonl#lines", "headrace.objects.line")


def test_each_pattern_and_mode_has_a_state_of_its_own() -> None:
    upstreams = [
        ObjectStore("s3://b/in"),
        ObjectStore("s3://b/in", pattern="*.csv"),
        ObjectStore("s3://b/in", read="lines"),
        ObjectStore("s3://b"),
    ]
    assert len({upstream.producer()._description.state for upstream in upstreams}) == len(upstreams)


def test_the_selection_has_no_states_markers_or_other_folders() -> None:
    selection = Selection(parse_location("s3://b/in").prefix, "*.json", "in/state/")
    selected = ["in/a.json", "in/x/y.json", "in//.json"]
    others = ["a.json", "inbox/a.json", "in/", "in/x/", "in/a.csv", "in/.headrace/a.json", "in/x/.headrace/1/a.json", "in/state/a.json"]
    assert [key for key in selected + others if selection.has(key)] == selected


def test_key_and_etag_identify_an_object() -> None:
    objects = [StoredObject("a", "1", 1, 0), StoredObject("a", "2", 1, 0), StoredObject("b", "1", 1, 0), StoredObject("a\udcff", "1", 1, 0)]
    assert len({stored.digest for stored in objects}) == len(objects)
    assert StoredObject("a", "1", 9, 9, "v").digest == objects[0].digest
