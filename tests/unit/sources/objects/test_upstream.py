"""Arguments of an object store, and the objects that it selects."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.values.locations import parse_location
from headrace.errors import UpstreamError
from headrace.sources.objects.azure.queue import StorageQueue
from headrace.sources.objects.location import Selection, StoredObject
from headrace.sources.objects.upstream import ObjectStore
from headrace.sources.sqs.upstream import SQS
from headrace.triggers.upstream import load_upstream


@pytest.mark.parametrize(
    ("location", "arguments", "message"),
    [
        ("landing", {}, "Invalid location"),
        ("abfss://landing", {}, "Invalid location"),
        ("az://b", {"notifications": SQS("q", decode="s3")}, "Invalid notifications"),
        ("s3://b", {"notifications": StorageQueue("queue")}, "Invalid notifications"),
        ("gs://b", {"notifications": SQS("q", decode="s3")}, "Notifications of gs:// are not supported"),
        ("gs://b", {"state": "s3://c/x"}, "is not in the service of"),
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


def test_it_is_serialised_with_its_storage_queue() -> None:
    upstream = ObjectStore("az://b/in", notifications=StorageQueue("landing", connection="other", visibility=60, wait=1))
    again = load_upstream(*upstream.serialize())
    assert again.serialize() == upstream.serialize()
    assert again.serialize()[1]["notifications"] == {"queue": "landing", "visibility": 60, "wait": 1.0, "connection": "other"}


@pytest.mark.parametrize(
    "arguments", [("Landing",), ("a",), ("a--b",), ("-ab",), ("x" * 64,), ("abc", 1), ("abc", True), ("abc", 30, 0), ("abc", 30, 60)]
)
def test_an_invalid_storage_queue_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(UpstreamError, match="Invalid"):
        StorageQueue(**dict(zip(("queue", "visibility", "wait"), arguments, strict=False)))


@pytest.mark.parametrize("queue", ["a-b", "abc", "1" * 63])
def test_a_valid_name_of_a_storage_queue_is_accepted(queue: str) -> None:
    assert StorageQueue(queue).arguments()["queue"] == queue


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


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://b", "b", ""),
        ("s3://b/", "b", ""),
        ("gs://b/x y/%41/ü#1", "b", "x y/%41/ü#1/"),
        ("gs://b_1.c-d/in/", "b_1.c-d", "in/"),
        ("s3://b/\U0001f600", "b", "\U0001f600/"),
        ("s3://b/a:b@c;d&e=f+g", "b", "a:b@c;d&e=f+g/"),
    ],
)
def test_a_folder_is_what_is_written(url: str, bucket: str, prefix: str) -> None:
    location = parse_location(url)
    assert (location.bucket, location.prefix) == (bucket, prefix)
    assert parse_location(location.url) == location


@pytest.mark.parametrize(
    "url",
    ["s3:/b", "s3:b", "S3://b", "s3://", "s3://b//x", "s3://b/x//", "s3://b/x//y", "s3://b/../c", "s3://b/./c", "s3://b/x?y", "s3://b/a\tb",
     "s3://b/a\nb", " s3://b/x", "s3://b c/x", "s3://[x/y", "s3://b\u2100/x", "s3://b%41/x", "s3://b/\udcff", "s3://b/\x00", "s3://b\\c",
     "s3://b/" + "é" * 600, "file:///x", "gcs://b/x", "memory://b"],
)  # fmt: skip
def test_a_location_that_might_mean_another_folder_is_refused(url: str) -> None:
    with pytest.raises(UpstreamError, match="Invalid location"):
        parse_location(url)


@pytest.mark.parametrize(
    ("url", "hint"), [("gcs://b", "gs://bucket"), ("abfss://b@x.dfs.core.windows.net/y", "az://container"), ("file:///x", "Directory")]
)
def test_the_scheme_of_another_system_says_what_to_do(url: str, hint: str) -> None:
    with pytest.raises(UpstreamError) as refused:
        parse_location(url)
    assert hint in str(refused.value.hint)


def test_each_scheme_has_a_connection_by_default() -> None:
    connections = [ObjectStore(url).serialize()[1]["connection"] for url in ("s3://b", "gs://b", "az://b")]
    assert connections == ["s3", "gcs", "azure"]
