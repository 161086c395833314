"""What a hub hands to its sink: what declared watches make of raw events, and what readers cannot take, refuse, or fail on."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple, Protocol, runtime_checkable

from headrace.core.matching.envelope import Envelope
from headrace.triggers.raw_event import RawEvent


class Origin(NamedTuple):
    """The place of a raw event in its stream; `position` is None where the upstream has none: `delivery_id` is there instead."""

    lane: str
    position: int | None
    delivery_id: str | None = None


class Matched(NamedTuple):
    """One raw event that watches with one envelope want, owed until `confirm_persisted([seq])`.

    `position` is None where the upstream has none: then `delivery_id` tells this delivery from its equals, here and below.
    """

    seq: int
    key: str
    lane: str
    position: int | None
    raw: RawEvent
    value: Any
    envelope: Envelope
    trigger_ids: tuple[int, ...]
    delivery_id: str | None = None


class Malformed(NamedTuple):
    """One raw event that no watch can read, and all watches of the stream. It is owed until `confirm_persisted([seq])`."""

    seq: int
    key: str
    lane: str
    position: int | None
    raw: RawEvent
    reason: str
    trigger_ids: tuple[int, ...]
    delivery_id: str | None = None


class Spilled(NamedTuple):
    """One raw event that these registered triggers cannot take now: to be kept in the backlog of each.

    It is owed until `confirm_persisted([seq])`. `raw` is text that `BacklogEntry.raw` gives back as it is. They come in the order of
    each lane.
    """

    seq: int
    key: str
    lane: str
    position: int | None
    raw: str
    trigger_ids: tuple[int, ...]
    delivery_id: str | None = None


class Poisoned(NamedTuple):
    """One raw event that a trigger failed on `attempts` times: to be kept as a dead letter, owed until `confirm_persisted([seq])`.

    `times` says when it failed (UTC), at most the last 20; `traceback` is the last failure's, a list of lines. `reason` is one sentence.
    """

    seq: int
    key: str
    lane: str
    position: int | None
    raw: str
    trigger_id: int
    attempts: int
    times: tuple[datetime, ...]
    traceback: tuple[str, ...]
    reason: str
    delivery_id: str | None = None


class RejectedEvent(NamedTuple):
    """One raw event that a trigger refused for good: to be kept as a dead letter, owed until `confirm_persisted([seq])`."""

    seq: int
    key: str
    lane: str
    position: int | None
    raw: str
    trigger_id: int
    reason: str | None
    delivery_id: str | None = None


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


@runtime_checkable
class StreamSink(WatchSink, Protocol):
    """A sink that also keeps what registered triggers cannot take: with it a hub spills. Its methods, too, return at once."""

    def spilled(self, spilled: Spilled) -> None:
        """Keep the raw event in the backlog of each trigger in time, in the order of these calls, then confirm its seq."""
        ...

    def poisoned(self, poisoned: Poisoned) -> None:
        """Keep the dead letter (kind `failed`) in time, then confirm its seq."""
        ...

    def refused(self, refused: RejectedEvent) -> None:
        """Keep the dead letter (kind `rejected`) in time, then confirm its seq."""
        ...

    def failed(self, key: str, trigger_id: int, error: Exception) -> None:
        """A subscriber was failed (`AckTimeout`, `SubscriberOverflow`): cancel its filter, which may hang, and subscribe it again.

        What it owed is spilled. It needs neither `fault` nor `unsubscribe`; both change nothing then, until it has subscribed again.
        """
        ...
