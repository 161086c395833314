"""The note in the description of a consumer."""

from __future__ import annotations

from headrace.sources.nats.consumer_note import ConsumerNote
from headrace.sources.progress_note import MAX_NOTE_BYTES
from headrace.triggers.stream_log import LogMark


def test_a_note_knows_the_consumers_of_its_upstream() -> None:
    note = ConsumerNote.parse(ConsumerNote.of(["shop-a", "shop-b"]).text(None))
    assert (note.has("shop-a"), note.has("shop-c")) == (True, False)


def test_the_consumers_stay_where_a_mark_is_too_long() -> None:
    text = ConsumerNote.of(f"shop-{number}" for number in range(100)).text(LogMark("log", "s" * MAX_NOTE_BYTES, 7))
    assert len(text) <= MAX_NOTE_BYTES
    assert ConsumerNote.parse(text).has("shop-99")


def test_a_note_has_the_floor_and_the_end_that_is_too_early() -> None:
    note = ConsumerNote.parse(ConsumerNote.of(["shop-a"], floor=100, end=50).text(LogMark("log", "s", 7)))
    assert (note.floor, note.end) == (100, 50)
    assert ConsumerNote.parse(ConsumerNote.of(["shop-a"]).text(None)).end is None
    assert ConsumerNote.parse('{"lanes":[]}').floor == 0, "the note of an earlier version"
