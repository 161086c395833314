"""The note in the description of each consumer: the consumers of the upstream, and the mark of the event log, as of the last opening."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, Self, TypeAlias

from headrace.sources.progress_note import ProgressNote

DIGEST_DIGITS: Final = 8

Info: TypeAlias = Mapping[str, Any]
"""What the server says of a consumer."""


class ConsumerNote(ProgressNote, omit_defaults=True, kw_only=True):
    """What an opening leaves in the description of a consumer. `lanes` has the checksums of the names of all consumers.

    `floor` is the acknowledged sequence at this opening. `end` is that of the stream when it was found before the floor.
    """

    lanes: list[str] = []
    floor: int = 0
    end: int | None = None

    @classmethod
    def of(cls, consumers: Iterable[str], floor: int = 0, end: int | None = None) -> Self:
        """Return the note of an upstream with these consumers."""
        return cls(lanes=[_digest(name) for name in consumers], floor=floor, end=end)

    def has(self, consumer: str) -> bool:
        """Return whether the upstream had this consumer."""
        return _digest(consumer) in self.lanes


def _digest(consumer: str) -> str:
    return sha256(consumer.encode()).hexdigest()[:DIGEST_DIGITS]


def note_of(info: Info) -> ConsumerNote:
    """Return the note of a consumer."""
    return ConsumerNote.parse(info["config"].get("description"))


def ack_floor(info: Info) -> int:
    """Return the acknowledged sequence. A server of version 2.9 returns 0 before the first acknowledgement."""
    return int(info["ack_floor"]["stream_seq"])


def last_floor(info: Info) -> int:
    """Return the acknowledged sequence, or that of the last opening if the server has lowered it since."""
    return max(ack_floor(info), note_of(info).floor)
