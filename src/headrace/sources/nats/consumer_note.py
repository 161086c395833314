"""The note in the description of each consumer: the consumers of the upstream, and the mark of the event log, as of the last opening."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, Self

from headrace.sources.progress_note import ProgressNote

DIGEST_DIGITS: Final = 8


class ConsumerNote(ProgressNote, omit_defaults=True, kw_only=True):
    """What an opening leaves in the description of a consumer. `lanes` has the checksums of the names of all consumers."""

    lanes: list[str] = []

    @classmethod
    def of(cls, consumers: Iterable[str]) -> Self:
        """Return the note of an upstream with these consumers."""
        return cls(lanes=[_digest(name) for name in consumers])

    def has(self, consumer: str) -> bool:
        """Return whether the upstream had this consumer."""
        return _digest(consumer) in self.lanes


def _digest(consumer: str) -> str:
    return sha256(consumer.encode()).hexdigest()[:DIGEST_DIGITS]
