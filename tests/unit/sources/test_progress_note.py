"""Notes beside the progress at a broker, by those of Kafka and NATS."""

from __future__ import annotations

import pytest

from headrace.sources.kafka.commits import CommitNote
from headrace.sources.nats.consumer_note import ConsumerNote
from headrace.sources.progress_note import newest_marks
from headrace.triggers.stream_log import LogMark


def test_a_note_is_parsed_back_unchanged() -> None:
    mark = LogMark("log", "kafka:main/shop/orders", 7)
    note = CommitNote.parse(CommitNote(topic="5f1c").text(mark))
    assert (note.topic, note.mark) == ("5f1c", mark)
    assert CommitNote.parse(CommitNote().text(None)) == CommitNote()


@pytest.mark.parametrize("text", [None, "", "reset by hand", "[1]", '{"topic": 5, "lanes": 5}', '{"log": 5}'])
def test_the_text_of_another_program_is_an_empty_note(text: str | None) -> None:
    assert CommitNote.parse(text) == CommitNote()
    assert ConsumerNote.parse(text) == ConsumerNote()


def test_a_mark_that_is_too_long_is_omitted() -> None:
    note = CommitNote.parse(CommitNote(topic="5f1c").text(LogMark("log", "x" * 4_000, 7)))
    assert (note.topic, note.mark) == ("5f1c", None)


def test_the_mark_with_the_most_receipts_of_each_stream_counts() -> None:
    marks = [LogMark("a", "s", 5), LogMark("a", "s", 9), LogMark("b", "s", 2), LogMark("a", "t", 1)]
    assert set(newest_marks([*marks, None])) == {LogMark("a", "s", 9), LogMark("b", "s", 2), LogMark("a", "t", 1)}
