"""Ids of dead letters: one for each origin, whatever streams and lanes are called."""

from __future__ import annotations

from itertools import product

from headrace.core.dead_letter_ids import dead_letter_id
from headrace.core.matching.envelope import Envelope

NAMES = ["a", "b", "a/b", "b/c", "c", "b%2Fc", "b%c", "5", "a/5", ""]


def test_places_with_slashes_in_their_names_have_ids_of_their_own() -> None:
    details: list[tuple[object, ...]] = [("malformed",), ("failed", 3), ("event", "failed", 3), ("event", "failed/3", 1), ("spill", 3)]
    places = [(stream, lane, position, detail) for stream, lane, position in product(NAMES, NAMES, [5, 7]) for detail in details]
    ids = {dead_letter_id(stream, lane, position, None, *detail) for stream, lane, position, detail in places}
    assert len(ids) == len(places)


def test_events_without_an_id_of_their_own_are_told_apart_by_their_places() -> None:
    envelope = Envelope(source="shop", type="order")
    places = list(product(NAMES, NAMES, [5, 7]))
    assert len({envelope.extract({}, stream=stream, lane=lane, position=position).id for stream, lane, position in places}) == len(places)
