from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.core.matching.paths import JsonPath
from headrace.errors import ProjectError
from headrace.triggers.base import has_acks
from headrace.triggers.watch import WatchTrigger
from support.sources.streams import Feed, MemoryUpstream

DECLARED: dict[str, Any] = {
    "match": {"carrier": ["UA"]},
    "id": "$.id",
    "follows": "$.previous",
    "subject": "$.tail",
    "occurred": "$.at",
    "type": "leg",
    "source": "$.source",
}


def test_a_watch_is_restored_from_its_serialized_form() -> None:
    watch = WatchTrigger(upstream=MemoryUpstream("legs"), **DECLARED)
    classpath, kwargs = watch.serialize()
    assert classpath == "headrace.triggers.watch.WatchTrigger"
    again = WatchTrigger(**json.loads(json.dumps(kwargs)))
    assert again.serialize() == (classpath, kwargs)
    assert again.envelope == watch.envelope
    assert again.match == {"carrier": ["UA"]}
    assert again.shared_stream_key() == "legs"


def test_source_and_type_are_texts_paths_or_defaults_of_the_upstream() -> None:
    watch = WatchTrigger(upstream=MemoryUpstream("legs"), **DECLARED)
    assert watch.envelope.type == "leg"
    assert watch.envelope.source == JsonPath.parse("$.source")
    plain = WatchTrigger(upstream=MemoryUpstream("legs"))
    assert (plain.envelope.type, plain.envelope.source) == ("memory.item", "headrace:legs")
    described = {"classpath": "support.sources.streams.MemoryUpstream", "kwargs": {"name": "legs"}}
    said = {"key": plain.upstream.stream_key(), "source": plain.upstream.source, "type": plain.upstream.event_type}
    assert plain.serialize()[1] == {"upstream": described | said}


def test_a_watch_uses_the_producer_of_its_upstream() -> None:
    feed = Feed()
    watch = WatchTrigger(upstream=MemoryUpstream.of(feed, "legs"))
    assert has_acks(WatchTrigger)
    assert WatchTrigger.create_shared_stream_producer(watch.serialize()[1]) is feed


WRONG: list[dict[str, Any]] = [
    {"id": "leg_id"},
    {"id": 3},
    {"type": ""},
    {"source": 3},
    {"source": "$"},
    {"match": {"a": "x"}},
    {"source": "s" * 1_001},
    {"source": "\0"},
    {"type": "t" * 201},
    {"type": "\ud800"},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_an_invalid_declaration_of_a_watch_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProjectError):
        WatchTrigger(upstream=MemoryUpstream("legs"), **wrong)


def test_the_longest_source_and_type_are_accepted() -> None:
    watch = WatchTrigger(upstream=MemoryUpstream("legs"), source="s" * 1_000, type="t" * 200)
    assert (watch.envelope.source, watch.envelope.type) == ("s" * 1_000, "t" * 200)


def test_a_source_of_an_upstream_that_no_event_can_have_is_declared_in_the_watch() -> None:
    upstream = MemoryUpstream("l" * 2_000)
    with pytest.raises(ProjectError, match="The upstream's source has 2,009 characters: more than 1,000") as refused:
        WatchTrigger(upstream=upstream)
    assert refused.value.hint == "Declare source= in the watch."
    assert WatchTrigger(upstream=upstream, source="legs").envelope.source == "legs"


ODD_TEXTS = ["", None, 7, ["a"], {"a": 1}, b"a", object()]


@pytest.mark.parametrize("what", ["key", "source", "type"])
@pytest.mark.parametrize("number", range(len(ODD_TEXTS)))
def test_an_upstream_with_an_invalid_key_source_or_type_is_rejected(what: str, number: int) -> None:
    class Odd(MemoryUpstream):
        def stream_key(self) -> Any:
            return ODD_TEXTS[number] if what == "key" else "legs"

        @property
        def source(self) -> Any:
            return ODD_TEXTS[number] if what == "source" else "legs"

        @property
        def event_type(self) -> Any:
            return ODD_TEXTS[number] if what == "type" else "leg"

    with pytest.raises(ProjectError, match="upstream's"):
        WatchTrigger(upstream=Odd("legs")).shared_stream_key()
    described = {"classpath": "support.sources.streams.MemoryUpstream", "kwargs": {}, "key": "legs", "source": "legs", "type": "leg"}
    with pytest.raises(ProjectError, match="upstream's"):
        WatchTrigger(upstream=described | {what: ODD_TEXTS[number]}).shared_stream_key()


def test_a_watch_resolves_the_relative_path_of_its_upstream(tmp_path: Path) -> None:
    class Folder(MemoryUpstream):
        def relative_to(self, base: Path) -> Folder:
            return Folder(str(base / self.name))

    watch = WatchTrigger(upstream=Folder("feed"), id="$.id")
    watch = watch.with_upstream(watch.upstream.relative_to(tmp_path))
    assert watch.shared_stream_key() == str(tmp_path / "feed")
    assert watch.envelope.id == JsonPath.parse("$.id")
