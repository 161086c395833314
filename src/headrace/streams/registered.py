"""The registered readers of one shared stream: what they cannot take, refuse or fail on goes to the sink, to be kept."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from headrace.core.ledger import Ledger
from headrace.core.obligation import Entry, Reader, Spill
from headrace.core.texts import describe_error, describe_traceback
from headrace.errors import MalformedEvent, StreamError
from headrace.streams.delivery import DeliveryIds
from headrace.streams.matched import Malformed, Poisoned, Refused, Spilled, StreamSink
from headrace.streams.rawtext import to_text
from headrace.streams.trouble import Trouble, text_of
from headrace.streams.watches import printed
from headrace.triggers.masking import mask

log = structlog.get_logger(__name__)

_MAX_ENTRIES = 100  # of a traceback


class Registered:
    """Those who owe their answers whether they run or not."""

    def __init__(self, stream: str, ledger: Ledger, sink: StreamSink, delivery_ids: DeliveryIds, *, max_attempts: int) -> None:
        self._stream = stream
        self._ledger = ledger
        self._sink = sink
        self._delivery_ids = delivery_ids
        self._max_attempts = max_attempts
        self._readers: dict[int, Reader] = {}
        self._troubles: dict[int, Trouble] = {}

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, trigger_id: int) -> bool:
        return trigger_id in self._readers

    def add(self, trigger_id: int, trouble: Trouble) -> None:
        """Register a trigger, which is away until it subscribes."""
        self._readers[trigger_id] = self._ledger.register(trigger_id)
        self._troubles[trigger_id] = trouble

    def drop(self, trigger_id: int) -> None:
        """Let a trigger go; it owes no more."""
        self._ledger.drop(self._readers.pop(trigger_id))
        del self._troubles[trigger_id]

    def reader(self, trigger_id: int) -> Reader:
        """Return the reader of a registered trigger."""
        return self._readers[trigger_id]

    def spill(self, readers: Iterable[Reader], *, stop: bool) -> None:
        """Let these be away: all they owe is spilled; with `stop` they do not go on with what they are at."""
        for spill in self._ledger.spill(readers, stop=stop):
            self.hand_over(spill)

    def hand_over(self, spill: Spill) -> None:
        """Give the sink what is to be kept in backlogs. What cannot be text becomes a dead letter."""
        seq, entry, readers = spill
        who = tuple([reader.trigger_id for reader in readers])
        lane = entry.lane.name
        try:
            text = to_text(entry.raw)
        except MalformedEvent as error:
            raw = printed(entry.raw, lane, entry.position)
            self._ledger.mark_rejected(seq)
            self._sink.malformed(Malformed(seq, self._stream, lane, entry.position, raw, str(error), who, self._delivery_ids.of(entry)))
        else:
            self._sink.spilled(Spilled(seq, self._stream, lane, entry.position, text, who, self._delivery_ids.of(entry)))

    def refuse(self, reader: Reader, reason: str | None) -> bool:
        """Give the sink what the reader is at as a dead letter; False: it is at nothing that is open."""
        entry = reader.open
        seq = self._ledger.dead_letter(reader, "rejected")
        if entry is None or seq is None:
            return False
        lane = entry.lane.name
        self._sink.refused(
            Refused(seq, self._stream, lane, entry.position, text_of(entry), reader.trigger_id, reason, self._delivery_ids.of(entry))
        )
        return True

    def fault(self, reader: Reader, error: Exception) -> int:
        """Let the reader come back to what it is at, or, after so many times, give the sink that as a dead letter.

        Returns how often it has failed on it.
        """
        entry = None if reader.settled else reader.open
        attempts = 0
        if entry is not None:
            trouble = self._troubles[reader.trigger_id]
            attempts = trouble.count(entry, self._delivery_ids.of(entry))
            if attempts >= self._max_attempts:
                self._poison(reader, entry, attempts, trouble, error)
        self._ledger.put_back(reader)
        return attempts

    def fail(self, reader: Reader, error: StreamError) -> None:
        """Let a reader be away that did not answer, or not quickly enough, and tell the sink. All it owes is spilled."""
        self.fault(reader, error)
        self.spill((reader,), stop=True)
        self._sink.failed(self._stream, reader.trigger_id, error)

    def _poison(self, reader: Reader, entry: Entry, attempts: int, trouble: Trouble, error: Exception) -> None:
        seq = self._ledger.dead_letter(reader, "dead_lettered")
        if seq is None:
            return
        reason = mask(describe_error(error))
        log.error("Raw event given up on", stream=self._stream, trigger_id=reader.trigger_id, attempts=attempts, reason=reason)
        self._sink.poisoned(
            Poisoned(
                seq,
                self._stream,
                entry.lane.name,
                entry.position,
                text_of(entry),
                reader.trigger_id,
                attempts + getattr(entry, "attempts", 0),
                trouble.times,
                tuple(mask(entry) for entry in describe_traceback(error)[-_MAX_ENTRIES:]),
                reason,
                self._delivery_ids.of(entry),
            )
        )
