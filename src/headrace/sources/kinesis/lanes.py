"""The lanes of one stream: which records were read, answered and stored, and which shards may begin. It has no clock.

A lane is a shard. Its positions count the events of its records from 1 on: sequence numbers have up to 186 bits. A *checkpoint* says which
record and event a count belongs to. So an event has the same position at each delivery.

Invariants:
- A position is delivered once in a stream, whatever is read again because an iterator has expired.
- The stored checkpoint never passes the *floor*, the first failed event.
- A shard begins once its parents are finished: closed, read to their end, and stored.
- After a loss, the count goes on LOST_POSITIONS later. Positions of lost records that were delivered before are not given again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.core.ledger.outcome import AdvanceItem
from headrace.sources.kinesis.client import KinesisClient, Shard
from headrace.sources.start import Start

LOST_POSITIONS: Final = 1_000_000_000
"""The positions that stand for an unknown number of lost records: more than a stream holds without an answer."""
CLOCK_MARGIN_MS: Final = 60_000
"""How far the clocks of the service and of the readers may be apart."""


class Checkpoint(NamedTuple):
    """The stored progress of a lane: the position of event `done` of the record `sequence`, which arrived at `arrived_ms`.

    All records that arrived before `known_ms` are among them. `done` is 0 for the first record of a lane, before its first event is stored.
    """

    position: int = 0
    sequence: str | None = None
    done: int = 0
    arrived_ms: int = 0
    known_ms: int = 0
    is_finished: bool = False

    def may_be_lost(self, horizon_ms: int) -> bool:
        """Return whether records after this one may have been deleted, if records that arrived before `horizon_ms` are."""
        return self.known_ms < horizon_ms + CLOCK_MARGIN_MS


class Delivered(NamedTuple):
    """The broker payload of a raw event: event `done` of the record `sequence`."""

    lane: Lane
    position: int
    sequence: str
    done: int
    arrived_ms: int


class Lane:
    """One shard, from a stored checkpoint on."""

    def __init__(self, name: str, shard: Shard, stored: Checkpoint) -> None:
        self.name = name
        self.shard = shard
        self.stored = stored
        """The checkpoint in the table."""
        self.iterator: str | None = None
        """The iterator of the next records, or None if there is none now."""
        self.is_ended = False
        """Whether the shard is closed and read to its end."""
        self.is_checked = False
        """Whether it is known that the first record read follows the checkpoint, or what is missing."""
        self.has_more = False
        """Whether an answer has records that are not delivered yet."""
        self.is_overtaken = False
        """Whether the service may have deleted records before they were read, while the stream is open."""
        self.at_end_ms: int | None = None
        """When the last answer that reached the end of the shard was requested, or None if records follow."""
        self.known_ms = stored.known_ms
        """The time before which all records that arrived are read."""
        self.left_out = 0
        """How many records within aggregated ones were left out in this opening, because they belong to another shard."""
        self._left_out_number = 0
        self._read = stored
        self._read_number = 0 if stored.sequence is None else int(stored.sequence)
        self._answered = stored.position
        self._floor: int | None = None

    @property
    def read(self) -> Checkpoint:
        """The last event that was read."""
        return self._read

    @property
    def is_drained(self) -> bool:
        """Whether all events that were read are stored as answered."""
        return self.stored.position == self._read.position

    @property
    def is_answered(self) -> bool:
        """Whether all events that were read are answered, also by failures."""
        return not self.has_more and self._answered >= self._read.position

    @property
    def committed_position(self) -> int | None:
        """The position that is stored, or None if there is none."""
        return self.stored.position or None

    @property
    def end_position(self) -> int | None:
        """The position of the last event, or None if records follow that were not read."""
        return None if self.at_end_ms is None else self._read.position or None

    def skip(self, sequence: str) -> int | None:
        """Return how many events of a record were read before, or None if all were."""
        number = int(sequence)
        if number < self._read_number:
            return None
        return self._read.done if number == self._read_number else 0

    def leave_out(self, sequence: str, count: int) -> None:
        """Count the records within an aggregated one that are left out, once for each aggregated record."""
        number = int(sequence)
        if number > self._left_out_number:
            self._left_out_number = number
            self.left_out += count

    def deliver(self, sequence: str, done: int, arrived_ms: int) -> Delivered:
        """Record that event `done` of a record is read, and return its payload."""
        self._read = Checkpoint(self._read.position + 1, sequence, done, arrived_ms)
        self._read_number = int(sequence)
        return Delivered(self, self._read.position, sequence, done, arrived_ms)

    def reached(self, known_ms: int, *, at_end: bool) -> None:
        """Record that all records that arrived before a time are read, and whether the shard has no more now."""
        self.known_ms = max(self.known_ms, known_ms)
        self.at_end_ms = known_ms if at_end else None

    def begin(self, stored: Checkpoint) -> None:
        """Record that reading begins at a checkpoint, which is stored."""
        self.stored = self._read = stored
        self._read_number = 0 if stored.sequence is None else int(stored.sequence)
        self._answered = stored.position
        self.is_checked = True

    def answer(self, batch: Sequence[AdvanceItem]) -> Checkpoint | None:
        """Record the answers to a batch. Return the checkpoint to store, or None if there is nothing to store."""
        last: Delivered | None = None
        for item in batch:
            payload: Delivered = item.broker_payload
            self._answered = max(self._answered, payload.position)
            if item.outcome.failed and payload.position > self.stored.position:
                self._floor = payload.position if self._floor is None else min(self._floor, payload.position)
            if payload.position > self.stored.position and (self._floor is None or payload.position < self._floor):
                last = payload
        if last is None:
            return None
        return self._completed(Checkpoint(last.position, last.sequence, last.done, last.arrived_ms, last.arrived_ms))

    def refreshed(self) -> Checkpoint | None:
        """Return the stored checkpoint with what is known now, or None if events that were read are not stored."""
        return self._completed(self.stored) if self.is_drained and self._floor is None else None

    def confirm(self, stored: Checkpoint) -> None:
        """Record that the table has stored a checkpoint."""
        if stored.position >= self.stored.position:
            self.stored = stored

    def _completed(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with what is known if it has all events that were read: up to when, and whether the shard is finished."""
        if checkpoint.position != self._read.position or self._floor is not None:
            return checkpoint
        return checkpoint._replace(known_ms=max(checkpoint.known_ms, self.known_ms), is_finished=self.is_ended)


def start_ms(start: Start, now_ms: int) -> int | None:
    """Return the arrival time from which shards are read, in milliseconds since 1970, or None for their first record."""
    if start == "earliest":
        return None
    return now_ms if start == "latest" else int(start.timestamp() * 1_000)


async def iterator_of(client: KinesisClient, lane: Lane, start_ms: int | None, horizon_ms: int) -> str:
    """Return an iterator of the last record of a lane that was read and those after it. Before the first, of those from `start_ms` on.

    Records that arrived before `horizon_ms` are deleted. With a sequence number of such a record, the service may answer without an end
    that there are no records. Raises `HeadraceError`.
    """
    read = lane.read
    if read.sequence is None:
        return await client.iterator_from(lane.shard.id, start_ms)
    if read.arrived_ms > horizon_ms + CLOCK_MARGIN_MS:
        return await client.iterator_at(lane.shard.id, read.sequence)
    return await client.iterator_from(lane.shard.id, None)


def ready_shards(shards: Mapping[str, Shard], finished: Collection[str], begun: Collection[str]) -> list[Shard]:
    """Return the shards that may begin: not begun, and without a parent that is not finished.

    Parents that the stream no longer has do not count, unless they are begun: their last records may still be without an answer.
    """
    return [
        shard
        for shard in shards.values()
        if shard.id not in begun
        and shard.id not in finished
        and all(parent in finished for parent in shard.parents if parent in shards or parent in begun)
    ]


def first_known_ms(shard: Shard, shards: Mapping[str, Shard], stored: Mapping[str, Checkpoint], now_ms: int) -> int:
    """Return the time before which a shard without a checkpoint got no records.

    It was made after the last look at its parents, or at their parents if these have no checkpoint either. `stored` has the checkpoints
    of earlier openings. Without one, the time is `now_ms`.
    """
    known_ms, open_ids, seen = now_ms, list(shard.parents), set[str]()
    while open_ids:
        id = open_ids.pop()
        if id in stored:
            known_ms = min(known_ms, stored[id].known_ms)
        elif id in shards and id not in seen:
            open_ids += shards[id].parents
        seen.add(id)
    return known_ms
