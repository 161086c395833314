from __future__ import annotations

from pathlib import Path

from headrace.core.matching.patterns.match_index import MatchIndex
from headrace.demo.project_file import install_project
from headrace.project import load_project
from headrace.triggers.watch import WatchTrigger
from support.pipelines.flights import january


def test_all_watches_read_the_feed_beside_the_project_as_one_stream(tmp_path: Path) -> None:
    declared = load_project(install_project(tmp_path)).declaration()
    assert {trigger.stream for trigger in declared.triggers} == {f"directory:{tmp_path}/feed/*.jsonl"}
    assert sum(trigger.name.startswith("legs.") for trigger in declared.triggers) == 16
    assert [(pipeline.name, pipeline.table) for pipeline in declared.pipelines] == [
        ("knock_on_delay", "knock_on_delay"),
        ("hourly_board", "hourly_board"),
    ]


def test_each_departure_matches_one_airline_and_some_match_a_destination(tmp_path: Path) -> None:
    triggers = load_project(install_project(tmp_path)).triggers
    names = dict(enumerate(triggers))
    index = MatchIndex()
    for number, trigger in enumerate(triggers.values()):
        assert isinstance(trigger, WatchTrigger)
        index.add(trigger.pattern, number)
    counts = set()
    for leg in january()[::10]:
        matched = [names[number] for number in index.matches({"carrier": leg.carrier, "dest": leg.dest})]
        assert sum(name.startswith("legs.") for name in matched) == 1
        counts.add(len(matched))
    assert counts == {1, 2}


def test_an_older_project_file_is_replaced(tmp_path: Path) -> None:
    installed = install_project(tmp_path)
    text = installed.read_bytes()
    installed.write_bytes(b"old")
    install_project(tmp_path)
    assert installed.read_bytes() == text
