"""Fan-out of one raw event: to the ledger, to the subscribers, and to the sink.

The law: an error in a raw event, or in its producer's methods for it, makes that raw event a dead letter. It is not raised.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from operator import index
from random import Random
from typing import Any, Final
from uuid import uuid4

import structlog

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import Spill, Subscriber
from headrace.core.memory_budget import ENTRY_BYTES, weigh
from headrace.core.values.text import describe_error, describe_value, lane_name
from headrace.errors import StreamError
from headrace.streams.sink import Malformed, Matched, WatchSink
from headrace.streams.subscribers.copies import copier
from headrace.streams.subscribers.registered import RegisteredSubscribers
from headrace.streams.subscribers.subscription import Subscription
from headrace.streams.watches import MatchResult, WatchSet, printed
from headrace.triggers.raw_event import RawEvent, message_id
from headrace.triggers.upstream import SharedStreamProducer

log = structlog.get_logger(__name__)

_WEIGH_INTERVAL: Final = 64
_matched: Final = partial(tuple.__new__, Matched)
"""`Matched` of a tuple, without the detour that every named tuple takes in Python."""
OPENING_DIGITS: Final = 12
"""Hexadecimal digits of the random id of one opening of a stream, in names of lanes."""
_FIRST: Final = -(2**63)
_LAST: Final = 2**63 - 1


class UnknownLane(Exception):
    """The producer has no lane for a raw event. The argument says why."""


class _NoLane:
    """The lane of raw events without a known lane."""

    def __str__(self) -> str:
        return "unknown lane"


NO_LANE: Final = _NoLane()


class FanOut:
    """Publishes the raw events of one shared stream. `watches` are the declared watches. `ready` is called when a lane becomes ready."""

    def __init__(
        self,
        stream: str,
        ledger: Ledger,
        sink: WatchSink | None,
        *,
        subscriptions: Mapping[int, Subscription],
        registered: RegisteredSubscribers | None,
        clock: Callable[[], float],
        ready: Callable[[], None],
    ) -> None:
        self.watches = WatchSet({})
        self._stream = stream
        self._ledger = ledger
        self._sink = sink
        self._subscriptions = subscriptions
        self._registered = registered
        self._clock = clock
        self._ready = ready
        self._opening = uuid4().hex[:OPENING_DIGITS]
        self._assigns: bool | None = None  # whether the stream assigns positions; None before the first raw event
        self._random = Random(stream)  # noqa: S311 - the choice of raw events to weigh is not security-relevant
        self._weigh_at = 0  # the first
        self._weight = 0

    def publish(self, producer: SharedStreamProducer, raw: Any, payload: Any) -> None:
        """Publish one raw event that `producer` yielded with `payload`. Raises `UnknownLane`: then the caller must `reject` it."""
        ledger, watches, is_text = self._ledger, self.watches, isinstance(raw, RawEvent)
        try:
            lane = producer.get_advance_lane(payload)
            opened = ledger.lanes.get(lane)
            name = lane_name(lane) if opened is None else opened.name
        except BaseException as error:  # a producer may raise anything, also SystemExit; it fails only this raw event
            raise UnknownLane(f"The producer does not name its lane: {describe_error(error)}") from error
        try:
            position = producer.get_position(payload)
            if not (type(position) is int and _FIRST <= position <= _LAST and self._assigns is False):
                position = self._assigned(position_of(position, raw))
                name = lane_name(lane, ledger.lane_suffix) if opened is None else opened.name
        except BaseException as error:  # as above
            self.reject(raw, payload, f"The producer gives no position: {describe_error(error)}", lane)
            return
        match = watches.match(raw, name, position) if watches.envelopes else None
        groups = () if match is None else match.trigger_groups(watches)
        # The advancer is woken only if no lane was ready before.
        was_idle, reading, registered = not ledger.ready, ledger.subscribers.reading, self._registered
        # The producer needs the content to advance it; readers need a parsed value as well, and a spill needs its text.
        if is_text:
            self._weight = ENTRY_BYTES + (3 if reading else 1) * (len(raw.data) if type(raw.data) is bytes else 0)
            self._weigh_at = 0
        elif ledger.counters.read >= self._weigh_at:
            self._weigh(raw)
        # A raw event without readers is not retained.
        stored = raw if reading or registered is not None else None
        now = self._clock()
        first_seq, woken, spill = ledger.publish(stored, payload, lane, now, position, groups, self._weight)
        if woken or spill is not None:
            self._notify(woken, spill)
        if match is not None:
            self._hand_over(match, first_seq, name, position, None if type(raw) is RawEvent else message_id(raw), now)
            match.raw.drop_value()
        if stored is not None and (is_text or registered is not None or len(reading) != 1):
            self._drop_unneeded(ledger, raw)
        if was_idle and ledger.ready:
            self._ready()

    def _assigned(self, position: int | None) -> int:
        """Return the position of the next raw event: the producer's, or a new one if its first raw event had none.

        Assigned positions count the raw events of this opening, and the names of its lanes have the opening's id. So receipts cover them.
        Raises `ValueError` if the producer has positions for some raw events only.
        """
        if self._assigns is None:
            self._assigns = position is None
            self._ledger.lane_suffix = f"@{self._opening}" if self._assigns else ""
        if (position is None) is not self._assigns:
            raise ValueError("it has positions for some raw events only.")
        return self._ledger.counters.read + 1 if position is None else position

    def _notify(self, woken: Sequence[Subscriber], spill: Spill | None) -> None:
        for reader in woken:
            self._subscriptions[reader.trigger_id].wake()
        if spill is not None and self._registered is not None:
            self._registered.hand_over(spill)

    def _weigh(self, raw: Any) -> None:
        """Estimate the bytes of this raw event, which is not a `RawEvent`, and of the next ones until one is weighed again.

        Only some are weighed: to weigh one costs as much as its fan-out.
        """
        times = 3 if self._ledger.subscribers.reading else 1
        self._weigh_at = self._ledger.counters.read + self._random.randint(1, _WEIGH_INTERVAL)
        self._weight = ENTRY_BYTES + times * weigh(raw)

    def _drop_unneeded(self, ledger: Ledger, raw: Any) -> None:
        """Drop a raw event without readers, and parsed values. Set the copy function of a raw event with several readers."""
        reading, entry = ledger.subscribers.reading, ledger.newest
        if entry is not None and not reading:
            entry.raw = None
        elif entry is not None and (len(reading) > 1 or self._registered):
            entry.copy = copier(raw)
        if isinstance(raw, RawEvent):
            raw.drop_value()

    def reject(self, raw: Any, payload: Any, reason: str, lane: Hashable = NO_LANE) -> None:
        """Publish an unreadable raw event: all triggers owe one dead letter."""
        ledger, sink = self._ledger, self._sink
        who = ledger.subscribers.owed
        log.error("Raw event rejected", stream=self._stream, lane=lane_name(lane), reason=reason)
        number = ledger.counters.read + 1
        position = number if self._assigns else None
        seq = ledger.publish_rejected(payload, lane=lane, now=self._clock(), position=position)
        if seq is not None:
            if sink is None:
                ledger.confirm(seq)
            else:
                name, id = ledger.lanes[lane].name, f"{self._opening}-{number}"
                sink.malformed(Malformed(seq, self._stream, name, position, printed(raw, name, position), reason, who, id))
        if ledger.ready:
            self._ready()

    def _hand_over(self, match: MatchResult, first_seq: int, lane: str, position: int, id: str | None, now: float) -> None:
        if now >= self.watches.sampler.due:
            self.watches.sample(match, now)
        sink, assigned = self._sink, self._assigns is True
        dead_letter_origin = id if assigned else None  # a sender may give two messages one id
        if sink is None:
            raise StreamError("There are declared watches, but no sink.")
        if match.malformed is not None:
            sink.malformed(
                Malformed(first_seq, self._stream, lane, position, match.raw, match.malformed, self.watches.trigger_ids, dead_letter_origin)
            )
            return
        seq = first_seq
        for envelope, trigger_ids in match.groups:
            try:
                sink.matched(_matched((seq, self._stream, lane, position, match.raw, match.value, envelope, trigger_ids, id, assigned)))
            except Exception as error:
                log.exception("Raw event cannot be made an event", stream=self._stream, lane=lane, position=position)
                self._ledger.mark_rejected(seq)
                sink.malformed(
                    Malformed(seq, self._stream, lane, position, match.raw, describe_error(error), trigger_ids, dead_letter_origin)
                )
            seq += 1


def position_of(position: Any, raw: Any) -> int | None:
    """Return the position as a number, by default that of the raw event itself. Raises if it is not an integer of 64 bits."""
    if position is None and isinstance(raw, RawEvent):
        position = raw.position
    if position is None:
        return None
    number = index(position)
    if isinstance(position, bool) or not _FIRST <= number <= _LAST:
        raise ValueError(f"{describe_value(position)[:100]} is not an integer of 64 bits.")
    return number
