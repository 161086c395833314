"""The note that each commit leaves beside its offset: the topic's id, and the mark of the event log.

Kafka stores up to 4096 bytes of text with a committed offset. Commits of other programs have another text or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headrace.triggers.stream_log import LogMark

MAX_NOTE_BYTES: Final = 4000


class CommitNote(msgspec.Struct, omit_defaults=True):
    """What a commit leaves beside its offset."""

    topic: str | None = None
    log: str | None = None
    stream: str | None = None
    receipts: int | None = None

    @property
    def mark(self) -> LogMark | None:
        """The mark of the event log, or None if the stream was not recorded."""
        if self.log is None or self.stream is None or self.receipts is None:
            return None
        return LogMark(self.log, self.stream, self.receipts)


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(CommitNote).decode


def note_text(birthmark: str | None, mark: LogMark | None) -> str:
    """Return the text of a note. A mark that is too long is left out."""
    note = CommitNote(birthmark) if mark is None else CommitNote(birthmark, mark.log, mark.stream, mark.receipts)
    data = _encode(note)
    return (data if len(data) <= MAX_NOTE_BYTES else _encode(CommitNote(birthmark))).decode()


def parse_note(text: str | None) -> CommitNote:
    """Return the note of a commit. It is empty for a commit of another program."""
    if not text:
        return CommitNote()
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return CommitNote()


def newest_marks(notes: Iterable[CommitNote]) -> list[LogMark]:
    """Return the mark with the most receipts of each log and stream."""
    newest: Mapping[tuple[str, str], LogMark] = {
        (mark.log, mark.stream): mark
        for mark in sorted((note.mark for note in notes if note.mark is not None), key=lambda mark: mark.receipts)
    }
    return list(newest.values())
