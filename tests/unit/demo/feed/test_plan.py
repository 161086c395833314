from __future__ import annotations

import json
from collections import Counter

import pytest

from headrace.core.matching.envelope import Envelope
from headrace.demo.feed.plan import plan_feed
from headrace.demo.feed.process import parameters
from headrace.demo.project_file import project_source
from headrace.errors import MalformedEvent, MissingField
from headrace.project import load_project
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.watch import WatchTrigger
from support.pipelines.flights import FEW, january, january_plan


def lines() -> list[tuple[str, int, bytes]]:
    """All lines of the feed in the order of writing, with file and offset."""
    found = []
    for file in january_plan().files:
        offset = 0
        for line in file.data.splitlines(keepends=True):
            found.append((file.name, offset, line))
            offset += len(line)
    return found


def good_lines() -> list[str]:
    bad = {(line.file, line.offset) for line in january_plan().manifest.bad}
    return [json.loads(line)["leg_id"] for name, offset, line in lines() if (name, offset) not in bad]


def test_equal_seeds_give_equal_bytes_and_different_seeds_different_bytes() -> None:
    legs = list(january()[:FEW])
    again = plan_feed(parameters(1, "january"), legs)
    assert again == plan_feed(parameters(1, "january"), legs)
    assert again.files != plan_feed(parameters(2, "january"), legs).files


def test_each_leg_is_sent_unless_withheld_and_one_in_fifty_is_repeated() -> None:
    manifest = january_plan().manifest
    came = Counter(good_lines())
    assert set(came) == {leg.leg_id for leg in january()} - set(manifest.withheld)
    assert max(came.values()) == 2
    assert manifest.repeated == sum(count == 2 for count in came.values())
    assert 0.015 < manifest.repeated / manifest.legs < 0.025
    assert manifest.lines == len(lines())


def test_five_leaders_are_withheld_and_their_followers_are_sent() -> None:
    withheld = january_plan().manifest.withheld
    followers = {leg.previous_leg_id: leg for leg in january()}
    assert len(withheld) == 5
    assert set(good_lines()) >= {followers[leg_id].leg_id for leg_id in withheld}
    assert not {followers[leg_id].leg_id for leg_id in withheld} & set(withheld)


def test_thousands_of_followers_precede_their_leaders_within_a_time_limit() -> None:
    order = {leg_id: place for place, leg_id in reversed(list(enumerate(good_lines())))}
    early = [leg for leg in january() if leg.leg_id in order and order[leg.leg_id] < order.get(leg.previous_leg_id or "", -1)]
    assert len(early) > 2_000
    assert january_plan().manifest.early > 2_000
    assert 0 < january_plan().manifest.max_early_seconds < 8


def test_each_file_has_the_legs_of_one_station_in_order_of_arrival() -> None:
    files = january_plan().files
    assert [file.name for file in files] == sorted(file.name for file in files)
    for file in files[::20]:
        bad = {line.offset for line in january_plan().manifest.bad if line.file == file.name}
        origins = {json.loads(line)["origin"] for name, offset, line in lines() if name == file.name and offset not in bad}
        assert len(origins) == 1
        assert file.name.endswith(f"-{origins.pop()}.jsonl")


def envelope() -> Envelope:
    (found,) = {trigger.envelope for trigger in load_project(project_source()).triggers.values() if isinstance(trigger, WatchTrigger)}
    return found


def test_each_bad_line_raises_the_error_of_its_kind() -> None:
    manifest = january_plan().manifest
    by_place = {(name, offset): line for name, offset, line in lines()}
    declared = envelope()
    assert Counter(line.kind for line in manifest.bad) == {"malformed": 25, "missing_field": 10}
    for bad in manifest.bad:
        raw = RawEvent(by_place[bad.file, bad.offset].removesuffix(b"\n"), bad.file, bad.offset)
        with pytest.raises(MalformedEvent if bad.kind == "malformed" else MissingField):
            declared.extract(raw.value, stream="feed", lane=raw.lane, position=raw.position)


def test_each_good_line_becomes_an_event_with_its_id() -> None:
    declared = envelope()
    bad = {(line.file, line.offset) for line in january_plan().manifest.bad}
    legs = {leg.leg_id: leg for leg in january()}
    for name, offset, line in lines()[::40]:
        if (name, offset) not in bad:
            value = json.loads(line)
            leg = legs[value["leg_id"]]
            fields = declared.extract(value, stream="feed", lane=name, position=offset)
            assert (fields.id, fields.follows, fields.subject) == (leg.leg_id, leg.previous_leg_id, leg.tail_number)
            assert fields.occurred == leg.departed_at
