"""Fans one raw event out: onto the books, to those who wait for it, and to the sink.

Whatever a raw event is like, and whatever its producer says of it, becomes that raw event's own dead letter: nothing of it is raised here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import index
from typing import Any, Final

import structlog

from headrace.core.ledger import Ledger
from headrace.core.texts import describe_error, describe_value, lane_name
from headrace.errors import MalformedEvent, StreamError
from headrace.streams.delivery import DeliveryIds
from headrace.streams.mailbox import Mailbox
from headrace.streams.matched import Malformed, Matched, WatchSink
from headrace.streams.registered import Registered
from headrace.streams.watches import Wanted, WatchSet, printed
from headrace.triggers.producer import SharedStreamProducer
from headrace.triggers.raw import RawEvent

log = structlog.get_logger(__name__)

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
    """Publishes the raw events of one shared stream. `watches` are those declared just now; `ready` is called when something is."""

    def __init__(
        self,
        stream: str,
        ledger: Ledger,
        sink: WatchSink | None,
        *,
        mailboxes: Mapping[int, Mailbox],
        registered: Registered | None,
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

    def publish(self, producer: SharedStreamProducer, raw: Any, payload: Any) -> None:
        """Publish one raw event that `producer` yielded with `payload`. Raises `UnknownLane`; `reject` is to follow then."""
        ledger, watches = self._ledger, self.watches
        try:
            lane = producer.get_advance_lane(payload)
            opened = ledger.lanes.get(lane)
            name = lane_name(lane) if opened is None else opened.name
        except BaseException as error:  # a producer may raise anything, also SystemExit; it is this raw event's trouble
            raise UnknownLane(f"The producer does not name its lane: {describe_error(error)}") from error
        try:
            position = _position(producer, payload, raw)
        except MalformedEvent as error:
            self.reject(raw, payload, str(error), lane)
            return
        if watches:
            wanted = watches.wants(raw, name, position)
            groups = wanted.groups
            if len(groups) == 1:
                claims: Sequence[tuple[int, ...]] = (groups[0][1],)
            elif wanted.malformed is not None:
                claims = (watches.trigger_ids,)
            else:
                claims = [trigger_ids for _, trigger_ids in groups]
        else:
            wanted, claims = None, ()
        # Whoever makes something ready wakes the pump: what was ready before needs no second call.
        was_ready = bool(ledger.ready)
        first_seq, woken, spill = ledger.publish(raw, payload, lane=lane, now=self._clock(), position=position, claims=claims)
        for reader in woken:
            self._mailboxes[reader.trigger_id].wake()
        if spill is not None and self._registered is not None:
            self._registered.hand_over(spill)
        if wanted is not None:
            delivery_id = None if position is not None else self._delivery_ids.at(ledger.counts.read - 1)
            self._hand_over(wanted, first_seq, name, position, delivery_id)
        if not was_ready and ledger.ready:
            self._ready()

    def reject(self, raw: Any, payload: Any, reason: str, lane: Hashable = NO_LANE) -> None:
        """Publish a raw event that none can read: its dead letter is for all that there are."""
        ledger, sink = self._ledger, self._sink
        who = ledger.roster.owed
        log.error("Raw event rejected", stream=self._stream, lane=lane_name(lane), reason=reason)
        seq = ledger.publish_rejected(raw, payload, lane=lane, now=self._clock())
        if seq is not None:
            ledger.mark_rejected(seq)
            if sink is None:
                ledger.confirm(seq)
            else:
                name, delivery_id = lane_name(lane), self._delivery_ids.at(ledger.counts.read - 1)
                sink.malformed(Malformed(seq, self._stream, name, None, printed(raw, name, None), reason, who, delivery_id))
        if ledger.ready:
            self._ready()

    def _hand_over(self, wanted: Wanted, first_seq: int, lane: str, position: int | None, delivery_id: str | None) -> None:
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
                sink.matched(Matched(seq, self._stream, lane, position, wanted.raw, wanted.value, envelope, trigger_ids, delivery_id))
            except Exception as error:
                log.exception("Raw event cannot be made an event", stream=self._stream, lane=lane, position=position)
                self._ledger.mark_rejected(seq)
                sink.malformed(Malformed(seq, self._stream, lane, position, wanted.raw, describe_error(error), trigger_ids, delivery_id))
            seq += 1


def _position(producer: SharedStreamProducer, payload: Any, raw: Any) -> int | None:
    """Return the position of a raw event. Raises `MalformedEvent` where what its producer says is none."""
    try:
        position = producer.get_position(payload)
        if position is None and isinstance(raw, RawEvent):
            position = raw.position
        if position is None or (type(position) is int and _FIRST <= position <= _LAST):
            return position
        if not isinstance(position, bool) and _FIRST <= (number := index(position)) <= _LAST:
            return number
    except BaseException as error:  # as above
        raise MalformedEvent(f"The producer gives no position: {describe_error(error)}") from error
    raise MalformedEvent(f"The producer gives the position {describe_value(position)[:100]}: it must be an integer of 64 bits, or None.")
