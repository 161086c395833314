"""The note that an upstream keeps beside its progress at the broker: the mark of the event log, and what the upstream adds to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

import msgspec

from headrace.triggers.stream_log import LogMark

MAX_NOTE_BYTES: Final = 4000
"""Kafka stores up to 4096 bytes with an offset, NATS JetStream up to 4 KiB in the description of a consumer."""

_encode: Final = msgspec.json.Encoder().encode


class ProgressNote(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A note. A subclass adds fields with defaults."""

    log: str | None = None
    stream: str | None = None
    receipts: int | None = None

    @property
    def mark(self) -> LogMark | None:
        """The mark of the event log, or None if the stream was not recorded."""
        if self.log is None or self.stream is None or self.receipts is None:
            return None
        return LogMark(self.log, self.stream, self.receipts)

    def text(self, mark: LogMark | None) -> str:
        """Return the text of this note with a mark. A mark that is too long is left out."""
        if mark is not None:
            data = _encode(msgspec.structs.replace(self, log=mark.log, stream=mark.stream, receipts=mark.receipts))
            if len(data) <= MAX_NOTE_BYTES:
                return data.decode()
        return _encode(self).decode()

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """Return the note of a text. It is empty for the text of another program."""
        if not text:
            return cls()
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError:
            return cls()


def newest_marks(marks: Iterable[LogMark | None]) -> list[LogMark]:
    """Return the mark with the most receipts of each log and stream."""
    rising = sorted((mark for mark in marks if mark is not None), key=lambda mark: mark.receipts)
    return list({(mark.log, mark.stream): mark for mark in rising}.values())
