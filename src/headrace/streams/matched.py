"""What a hub hands to its sink: what declared watches make of the raw events of a shared stream."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from headrace.core.envelope import Envelope
from headrace.triggers.raw import RawEvent


class Origin(NamedTuple):
    """The place of a raw event in its stream; `position` is None where the upstream has none."""

    lane: str
    position: int | None


class Matched(NamedTuple):
    """One raw event that watches with one envelope want, owed until `confirm_persisted([seq])`.

    `position` is None where the upstream has none.
    """

    seq: int
    key: str
    lane: str
    position: int | None
    raw: RawEvent
    value: Any
    envelope: Envelope
    trigger_ids: tuple[int, ...]


class Malformed(NamedTuple):
    """One raw event that no watch can read, and all watches of the stream. It is owed until `confirm_persisted([seq])`."""

    seq: int
    key: str
    lane: str
    position: int | None
    raw: RawEvent
    reason: str
    trigger_ids: tuple[int, ...]


class WatchSink(Protocol):
    """Takes what declared watches make. The methods return at once and do not raise; they may call back into the hub."""

    def matched(self, matched: Matched) -> None:
        """Store the event in time, then confirm its seq."""
        ...

    def malformed(self, malformed: Malformed) -> None:
        """Store the dead letter in time, then confirm its seq."""
        ...

    def ended(self, key: str, trigger_ids: tuple[int, ...], error: Exception) -> None:
        """The stream ended, and with it the watching of these triggers; what is owed of it is not waited for any more."""
        ...
