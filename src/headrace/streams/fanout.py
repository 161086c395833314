"""Fans one raw event out: onto the books, to those who wait for it, and to the sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.core.ledger import Ledger
from headrace.errors import StreamError
from headrace.streams.mailbox import Mailbox
from headrace.streams.matched import Malformed, Matched, WatchSink
from headrace.streams.registered import Registered
from headrace.streams.trouble import lane_name
from headrace.streams.watches import Wanted, WatchSet
from headrace.triggers.producer import SharedStreamProducer
from headrace.triggers.raw import RawEvent


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
    ) -> None:
        self.watches = WatchSet({})
        self._stream = stream
        self._ledger = ledger
        self._sink = sink
        self._mailboxes = mailboxes
        self._registered = registered
        self._clock = clock
        self._ready = ready

    def publish(self, producer: SharedStreamProducer, raw: Any, payload: Any) -> None:
        """Publish one raw event that `producer` yielded with `payload`."""
        ledger, watches = self._ledger, self.watches
        lane = producer.get_advance_lane(payload)
        position = producer.get_position(payload)
        if position is None and isinstance(raw, RawEvent):
            position = raw.position
        if watches:
            lane_text = lane_name(lane)
            wanted = watches.wants(raw, lane_text, position)
            groups = wanted.groups
            if len(groups) == 1:
                claims: Sequence[tuple[int, ...]] = (groups[0][1],)
            elif wanted.malformed is not None:
                claims = (watches.trigger_ids,)
            else:
                claims = [trigger_ids for _, trigger_ids in groups]
        else:
            lane_text, wanted, claims = "", None, ()
        # Whoever makes something ready wakes the pump: what was ready before needs no second call.
        was_ready = bool(ledger.ready)
        first_seq, woken, spill = ledger.publish(raw, payload, lane=lane, now=self._clock(), position=position, claims=claims)
        for reader in woken:
            self._mailboxes[reader.trigger_id].wake()
        if spill is not None and self._registered is not None:
            self._registered.hand_over(spill)
        if wanted is not None:
            self._hand_over(wanted, first_seq, lane_text, position)
        if not was_ready and ledger.ready:
            self._ready()

    def _hand_over(self, wanted: Wanted, first_seq: int, lane: str, position: int | None) -> None:
        sink = self._sink
        if sink is None:
            raise StreamError("There are declared watches, but no sink.")
        if wanted.malformed is not None:
            sink.malformed(Malformed(first_seq, self._stream, lane, position, wanted.raw, wanted.malformed, self.watches.trigger_ids))
            return
        seq = first_seq
        for envelope, trigger_ids in wanted.groups:
            sink.matched(Matched(seq, self._stream, lane, position, wanted.raw, wanted.value, envelope, trigger_ids))
            seq += 1
