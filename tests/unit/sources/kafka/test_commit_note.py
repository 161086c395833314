from __future__ import annotations

import pytest

from headrace.sources.kafka.commit_note import CommitNote, newest_marks, note_text, parse_note
from headrace.triggers.stream_log import LogMark


def test_a_note_is_parsed_back_unchanged() -> None:
    mark = LogMark("log", "kafka:main/shop/orders", 7)
    note = parse_note(note_text("5f1c", mark))
    assert (note.topic, note.mark) == ("5f1c", mark)
    assert parse_note(note_text(None, None)) == CommitNote()


@pytest.mark.parametrize("text", [None, "", "reset by hand", "[1]", '{"topic": 5}'])
def test_the_text_of_another_program_is_an_empty_note(text: str | None) -> None:
    assert parse_note(text) == CommitNote()


def test_a_mark_that_is_too_long_is_omitted() -> None:
    note = parse_note(note_text("5f1c", LogMark("log", "x" * 4_000, 7)))
    assert (note.topic, note.mark) == ("5f1c", None)


def test_the_mark_with_the_most_receipts_of_each_stream_counts() -> None:
    marks = [LogMark("a", "s", 5), LogMark("a", "s", 9), LogMark("b", "s", 2), LogMark("a", "t", 1)]
    notes = [CommitNote("t", *mark) for mark in marks] + [CommitNote("t")]
    assert set(newest_marks(notes)) == {LogMark("a", "s", 9), LogMark("b", "s", 2), LogMark("a", "t", 1)}
