"""Ids of dead letters: one for each origin, for any names of streams and lanes."""

from __future__ import annotations

from itertools import product

from headrace.core.dead_letter_ids import dead_letter_id
from headrace.core.matching.envelope import Envelope

NAMES = ["a", "b", "a/b", "b/c", "c", "b%2Fc", "b%c", "5", "a/5", ""]


def test_origins_with_slashes_in_their_names_have_distinct_ids() -> None:
    details: list[tuple[object, ...]] = [("malformed",), ("failed", 3), ("event", "failed", 3), ("event", "failed/3", 1), ("spill", 3)]
    places = [(stream, lane, position, detail) for stream, lane, position in product(NAMES, NAMES, [5, 7]) for detail in details]
    ids = {dead_letter_id(stream, lane, position, None, *detail) for stream, lane, position, detail in places}
    assert len(ids) == len(places)


def test_events_without_a_declared_id_have_distinct_ids_by_position() -> None:
    envelope = Envelope(source="shop", type="order")
    places = list(product(NAMES, NAMES, [5, 7]))
    assert len({envelope.extract({}, stream=stream, lane=lane, position=position).id for stream, lane, position in places}) == len(places)
