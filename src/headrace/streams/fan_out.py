"""Fans one raw event out: onto the books, to those who wait for it, and to the sink.

Whatever a raw event is like, and whatever its producer says of it, becomes that raw event's own dead letter: nothing of it is raised here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from operator import index
from random import Random
from typing import Any, Final

import structlog

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import Spill, Subscriber
from headrace.core.memory_budget import ENTRY_BYTES, weigh
from headrace.core.values.text import describe_error, describe_value, lane_name
from headrace.errors import StreamError
from headrace.streams.delivery_names import DeliveryIds
from headrace.streams.sink import Malformed, Matched, WatchSink
from headrace.streams.subscribers.copies import copier
from headrace.streams.subscribers.registered import RegisteredSubscribers
from headrace.streams.subscribers.subscription import Subscription
from headrace.streams.watches import MatchResult, WatchSet, printed
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.upstream import SharedStreamProducer

log = structlog.get_logger(__name__)

_WEIGH_EVERY: Final = 64
_matched: Final = partial(tuple.__new__, Matched)
"""`Matched` of a tuple, without the detour that every named tuple takes in Python."""
_FIRST: Final = -(2**63)
_LAST: Final = 2**63 - 1


class UnknownLane(Exception):
    """The producer cannot say which lane a raw event is of; the argument says why."""


class _NoLane:
    """The lane of raw events whose own is unknown."""

    def __str__(self) -> str:
        return "unknown lane"


NO_LANE: Final = _NoLane()


class FanOut:
    """Publishes the raw events of one shared stream. `watches` are those declared now; `ready` is called when something is."""

    def __init__(
        self,
        stream: str,
        ledger: Ledger,
        sink: WatchSink | None,
        *,
        mailboxes: Mapping[int, Subscription],
        registered: RegisteredSubscribers | None,
        clock: Callable[[], float],
        ready: Callable[[], None],
        delivery_ids: DeliveryIds,
    ) -> None:
        self.watches = WatchSet({})
        self._stream = stream
        self._ledger = ledger
        self._sink = sink
        self._mailboxes = mailboxes
        self._registered = registered
        self._clock = clock
        self._ready = ready
        self._delivery_ids = delivery_ids
        self._chance = Random(stream)  # noqa: S311 - which raw events are weighed is no secret
        self._weigh_at = 0  # the first
        self._weight = 0

    def publish(self, producer: SharedStreamProducer, raw: Any, payload: Any) -> None:
        """Publish one raw event that `producer` yielded with `payload`. Raises `UnknownLane`; `reject` is to follow then."""
        ledger, watches, is_text = self._ledger, self.watches, isinstance(raw, RawEvent)
        try:
            lane = producer.get_advance_lane(payload)
            opened = ledger.lanes.get(lane)
            name = lane_name(lane) if opened is None else opened.name
        except BaseException as error:  # a producer may raise anything, also SystemExit; it is this raw event's trouble
            raise UnknownLane(f"The producer does not name its lane: {describe_error(error)}") from error
        try:
            position = producer.get_position(payload)
            if not (_FIRST <= position <= _LAST if type(position) is int else position is None and not is_text):
                position = position_of(position, raw)
        except BaseException as error:  # as above
            self.reject(raw, payload, f"The producer gives no position: {describe_error(error)}", lane)
            return
        wanted = watches.wants(raw, name, position) if watches.envelopes else None
        claims = () if wanted is None else wanted.claims(watches)
        # Whoever makes something ready wakes the pump: what was ready before needs no second call.
        was_idle, reading, registered = not ledger.ready, ledger.roster.reading, self._registered
        # The content counts also for what the producer needs to advance it; where readers wait, for itself and its text in a spill.
        if is_text:
            self._weight = ENTRY_BYTES + (3 if reading else 1) * (len(raw.data) if type(raw.data) is bytes else 0)
            self._weigh_at = 0
        elif ledger.counts.read >= self._weigh_at:
            self._weigh(raw)
        # What is read by nobody is not kept.
        kept = raw if reading or registered is not None else None
        first_seq, woken, spill = ledger.publish(kept, payload, lane, self._clock(), position, claims, self._weight)
        if woken or spill is not None:
            self._tell(woken, spill)
        if wanted is not None:
            self._hand_over(
                wanted, first_seq, name, position, None if position is not None else self._delivery_ids.at(ledger.counts.read - 1)
            )
            wanted.raw.drop_value()
        if kept is not None and (is_text or registered is not None or len(reading) != 1):
            self._keep_little(ledger, raw)
        if was_idle and ledger.ready:
            self._ready()

    def _tell(self, woken: Sequence[Subscriber], spill: Spill | None) -> None:
        for reader in woken:
            self._mailboxes[reader.trigger_id].wake()
        if spill is not None and self._registered is not None:
            self._registered.hand_over(spill)

    def _weigh(self, raw: Any) -> None:
        """Set about how many bytes this raw event, which is no `RawEvent`, and those that follow hold, until one is weighed again.

        Only some are weighed: one costs what a fan-out costs.
        """
        times = 3 if self._ledger.roster.reading else 1
        self._weigh_at = self._ledger.counts.read + self._chance.randint(1, _WEIGH_EVERY)
        self._weight = ENTRY_BYTES + times * weigh(raw)

    def _keep_little(self, ledger: Ledger, raw: Any) -> None:
        """Keep nothing that nobody will read, and no parsed value; a raw event that several will read is copied for each."""
        reading, entry = ledger.roster.reading, ledger.newest
        if entry is not None and not reading:
            entry.raw = None
        elif entry is not None and (len(reading) > 1 or self._registered):
            entry.copy = copier(raw)
        if isinstance(raw, RawEvent):
            raw.drop_value()

    def reject(self, raw: Any, payload: Any, reason: str, lane: Hashable = NO_LANE) -> None:
        """Publish a raw event that none can read: its dead letter is for all that there are."""
        ledger, sink = self._ledger, self._sink
        who = ledger.roster.owed
        log.error("Raw event rejected", stream=self._stream, lane=lane_name(lane), reason=reason)
        seq = ledger.publish_rejected(payload, lane=lane, now=self._clock())
        if seq is not None:
            if sink is None:
                ledger.confirm(seq)
            else:
                name, delivery_id = lane_name(lane), self._delivery_ids.at(ledger.counts.read - 1)
                sink.malformed(Malformed(seq, self._stream, name, None, printed(raw, name, None), reason, who, delivery_id))
        if ledger.ready:
            self._ready()

    def _hand_over(self, wanted: MatchResult, first_seq: int, lane: str, position: int | None, delivery_id: str | None) -> None:
        sink = self._sink
        if sink is None:
            raise StreamError("There are declared watches, but no sink.")
        if wanted.malformed is not None:
            sink.malformed(
                Malformed(first_seq, self._stream, lane, position, wanted.raw, wanted.malformed, self.watches.trigger_ids, delivery_id)
            )
            return
        seq = first_seq
        for envelope, trigger_ids in wanted.groups:
            try:
                sink.matched(_matched((seq, self._stream, lane, position, wanted.raw, wanted.value, envelope, trigger_ids, delivery_id)))
            except Exception as error:
                log.exception("Raw event cannot be made an event", stream=self._stream, lane=lane, position=position)
                self._ledger.mark_rejected(seq)
                sink.malformed(Malformed(seq, self._stream, lane, position, wanted.raw, describe_error(error), trigger_ids, delivery_id))
            seq += 1


def position_of(position: Any, raw: Any) -> int | None:
    """Return the number that `position` is, or what the raw event itself says. Raises where that is no number."""
    if position is None and isinstance(raw, RawEvent):
        position = raw.position
    if position is None:
        return None
    number = index(position)
    if isinstance(position, bool) or not _FIRST <= number <= _LAST:
        raise ValueError(f"{describe_value(position)[:100]} is not an integer of 64 bits.")
    return number
