"""The sink of a manager: it gets matches of declared watches, and raw events that readers spill, reject or fail on."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple, Protocol, runtime_checkable

from headrace.core.matching.envelope import Envelope
from headrace.triggers.raw_event import RawEvent


class Origin(NamedTuple):
    """The origin of a raw event in its stream. `message_id` is the id that the message has at each delivery, or None.

    `stream` is given only for a raw event of another stream than the present one: it waited in the backlog since its trigger read that.
    """

    lane: str
    position: int | None
    message_id: str | None = None
    stream: str | None = None


class Matched(NamedTuple):
    """One raw event that matches watches with the same envelope, owed until `confirm_persisted([seq])`.

    `value` has at least the fields that the stream's watches read. `message_id` is the id that the message has at each delivery, or None,
    here and below. With `assigned`, the stream has assigned the
    position since the upstream has none, so it differs at the next delivery.
    """

    seq: int
    key: str
    lane: str
    position: int | None
    raw: RawEvent
    value: Any
    envelope: Envelope
    trigger_ids: tuple[int, ...]
    message_id: str | None = None
    assigned: bool = False


class Malformed(NamedTuple):
    """One raw event that is unreadable, for all watches of the stream. It is owed until `confirm_persisted([seq])`."""

    seq: int
    key: str
    lane: str
    position: int | None
    raw: RawEvent
    reason: str
    trigger_ids: tuple[int, ...]
    message_id: str | None = None


class Spilled(NamedTuple):
    """One raw event to store in the backlog of each of these registered triggers, which cannot process it now.

    It is owed until `confirm_persisted([seq])`. `BacklogEntry.raw` must return the text of `raw` unchanged. Raw events of one lane come in
    order.
    """

    seq: int
    key: str
    lane: str
    position: int
    raw: str
    trigger_ids: tuple[int, ...]


class Poisoned(NamedTuple):
    """One raw event to store as a dead letter, since a trigger failed on it `attempts` times. Owed until `confirm_persisted([seq])`.

    `times` are those of the last failures (UTC), at most 20. `traceback` has the lines of the last one. `reason` is one sentence.
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
    message_id: str | None = None


class RejectedEvent(NamedTuple):
    """One raw event that a trigger rejected, to store as a dead letter. Owed until `confirm_persisted([seq])`."""

    seq: int
    key: str
    lane: str
    position: int | None
    raw: str
    trigger_id: int
    reason: str | None
    message_id: str | None = None


class WatchSink(Protocol):
    """Gets the matches of declared watches. The methods return immediately and do not raise. They may call the manager."""

    def matched(self, matched: Matched) -> None:
        """Store the event within the ack timeout, then confirm its seq."""
        ...

    def malformed(self, malformed: Malformed) -> None:
        """Store the dead letter, then confirm its seq."""
        ...

    def ended(self, key: str, trigger_ids: tuple[int, ...], error: Exception) -> None:
        """The stream of these watches ended. Its unconfirmed items are no longer awaited."""
        ...


@runtime_checkable
class StreamSink(WatchSink, Protocol):
    """A sink that also stores raw events of registered triggers, so that the manager can spill. Its methods return immediately."""

    def spilled(self, spilled: Spilled) -> None:
        """Store the raw event in the backlog of each trigger, in the order of these calls, then confirm its seq."""
        ...

    def poisoned(self, poisoned: Poisoned) -> None:
        """Store the dead letter (kind `failed`), then confirm its seq."""
        ...

    def rejected(self, event: RejectedEvent) -> None:
        """Store the dead letter (kind `rejected`), then confirm its seq."""
        ...

    def failed(self, key: str, trigger_id: int, error: Exception) -> None:
        """A subscriber was failed (`AckTimeout`, `SubscriberOverflow`): cancel its filter, which may hang, and subscribe it again.

        All that it owed is spilled. `record_failure` and `unsubscribe` are not needed, and change nothing until it has subscribed again.
        """
        ...
