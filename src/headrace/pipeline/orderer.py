"""The ordering of a scope on the driver: the kernel decides on slim columns, and the payload is only ever moved as buffers.

What a batch leaves (the kernel's state, what batching holds, what is still to be given again) is durable before its output begins. A
batch that runs again begins with what the one before it left, reads the same stretch of the log, and so gives the same slices again.
What waits is held by its seq; its payload stays in the log, which keeps it until the scope is past it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.core.batching import cut
from headrace.pipeline.bounds import Begin, Bounds
from headrace.pipeline.holdings import Holdings, histogram, waits
from headrace.pipeline.kernel import Kernel, Step
from headrace.pipeline.log_reader import LogReader
from headrace.pipeline.ordering_file import Held, OrderingFiles, Saved
from headrace.pipeline.ranges import numbers_of
from headrace.pipeline.routing import route
from headrace.pipeline.schemas import ORDERED_SCHEMA
from headrace.pipeline.slices import Slice
from headrace.project import Pipeline
from headrace.wire.events import ScopeReport
from headrace.wire.log import LOG_SCHEMA
from headrace.wire.runs import Redelivery

MOST_CACHED: Final = 64 * 1024 * 1024
"""Bytes of waiting events that are kept in memory; beyond that they are read from the log again when they are released."""

_MOST_TOLD: Final = 100
_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Ordered:
    """What a batch gives: slices in the order to run them, how many events were released, and what the scope then holds."""

    slices: list[Slice]
    released: int
    holdings: Holdings


class Orderer:
    """Orders the batches of one scope, one after the other. `lookback` in µs, `begin` is where the scope begins."""

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        reader: LogReader,
        files: OrderingFiles,
        lookback: int,
        scope: str,
        begin: Begin = Begin(0),  # noqa: B008  a constant
    ) -> None:
        self._pipelines = list(pipelines)
        self._reader = reader
        self._files = files
        self._lookback = lookback
        self._scope = scope
        self._start = begin
        self._batch: int | None = None
        self._kernel = Kernel(lookback)
        self._saved = Saved()
        self._cached = LOG_SCHEMA.empty_table()

    def order(self, batch: int, bounds: Bounds) -> Ordered:
        """Take one batch of the log; what it leaves is durable when this returns."""
        self._begin(batch, bounds)
        self._batch = None  # until all of it is done: what is in memory is then half of one batch and half of the other
        arrived = self._reader.read(bounds.after, bounds.to)
        self._reader.look_ahead(bounds.to)
        step = self._kernel.step(arrived, bounds.clock)
        table = self._released(step, arrived)
        table, letters = self._given_again(bounds, table)
        slices = [*self._gathered(table, bounds.clock), *self._letters(letters)]
        self._saved.holds = histogram(self._saved.holds, step.waited)
        self._saved.hold_micros += int(step.waited.sum())
        self._saved.kernel = self._kernel.snapshot()
        self._saved.read = bounds.to
        if arrived.num_rows:
            self._saved.last_seq, self._saved.last_id = arrived.column("seq")[-1].as_py(), arrived.column("id")[-1].as_py()
        self._files.save(batch, self._saved)
        self._batch = batch
        return Ordered(slices, len(step.seqs), self._holdings(bounds, len(step.seqs)))

    def _begin(self, batch: int, bounds: Bounds) -> None:
        """Hold what the batch before left: it is in memory, unless this one runs again or is the first of this process."""
        if self._batch is not None and self._batch == batch - 1:
            return
        self._saved = self._files.load(batch - 1)
        self._kernel = Kernel.of_snapshot(self._saved.kernel, self._lookback) if self._saved.kernel else Kernel(self._lookback)
        self._kernel.head = max(self._kernel.head, bounds.after)
        self._cached = LOG_SCHEMA.empty_table()

    def _released(self, step: Step, arrived: pa.Table) -> pa.Table:
        """Return what is released as ORDERED_SCHEMA, and keep the rows of what waits."""
        at_hand = pa.concat_tables([self._cached, arrived]) if self._cached.num_rows else arrived
        events = self._rows(step.seqs, at_hand)
        waiting = self._kernel.waiting.seq
        here = np.isin(at_hand.column("seq").to_numpy(), waiting) if len(waiting) else None
        kept = at_hand.filter(pa.array(here)) if here is not None else LOG_SCHEMA.empty_table()
        self._cached = kept if kept.nbytes <= MOST_CACHED else LOG_SCHEMA.empty_table()
        last = self._kernel.position
        return _ordered(events, np.arange(last - len(step.seqs) + 1, last + 1), step.mark_column(), step.waited / _MICROS)

    def _rows(self, seqs: Any, at_hand: pa.Table) -> pa.Table:
        """Return the events with these seqs, in this order: from `at_hand` (ascending), and from the log what is not there."""
        if not len(seqs):
            return LOG_SCHEMA.empty_table()
        known = at_hand.column("seq").to_numpy()
        places = np.searchsorted(known, seqs)
        here = places < len(known)
        here[here] = known[places[here]] == seqs[here]
        if not here.all():
            at_hand = pa.concat_tables([at_hand, self._reader.pick(np.unique(seqs[~here]).tolist())]).sort_by("seq")
            places = np.searchsorted(at_hand.column("seq").to_numpy(), seqs)
        return at_hand.take(pa.array(places))

    def _given_again(self, bounds: Bounds, table: pa.Table) -> tuple[pa.Table, list[Redelivery]]:
        """Add what fired late on events that were released before; what fired late on others waits for them."""
        found = self._reader.redeliveries(bounds.again_after, bounds.again_to)
        records = [record for record in found if self._is_due(record)]
        letters = [record for record in records if record.letter is not None and record.scope == self._scope]
        late = [record for record in records if record.trigger is not None]
        pending = [*self._saved.pending, *((record.seq, record.trigger or "") for record in late)]
        if not pending:
            return table, letters
        waiting = set(self._kernel.waiting.seq.tolist())
        now = set(table.column("seq").to_pylist())
        joined = [(seq, trigger) for seq, trigger in pending if seq in now]
        self._saved.pending = [(seq, trigger) for seq, trigger in pending if seq in waiting or seq > self._kernel.head]
        passed = [record for record in late if record.seq not in now and record.seq not in waiting and record.seq <= self._kernel.head]
        return pa.concat_tables([_with_triggers(table, joined), self._late(passed)]), letters

    def _is_due(self, record: Redelivery) -> bool:
        """Whether the redelivery is this scope's: what was told before the scope began counts for its own events only."""
        return record.id > self._start.known or (record.trigger is not None and record.seq > self._start.seq)

    def _late(self, records: list[Redelivery]) -> pa.Table:
        """Return events that were released before, with those triggers alone that bring them to a pipeline that has not had them."""
        triggers: dict[int, list[str]] = {}
        for record in records:
            name = record.trigger or ""
            if any(pipe.takes(name) and not any(map(pipe.takes, record.before)) for pipe in self._pipelines):
                triggers.setdefault(record.seq, []).append(name)
        if not triggers:
            return ORDERED_SCHEMA.empty_table()
        seqs = np.array(sorted(triggers), dtype=np.int64)
        events = _replaced(self._rows(seqs, LOG_SCHEMA.empty_table()), [triggers[seq] for seq in seqs.tolist()])
        return self._placed(events)

    def _placed(self, events: pa.Table) -> pa.Table:
        """Return events that are handled once more, or by one more, with places of their own."""
        first = self._kernel.position + 1
        self._kernel.position += events.num_rows
        count = events.num_rows
        return _ordered(events, np.arange(first, first + count), pa.nulls(count, pa.string()), np.zeros(count))

    def _letters(self, records: list[Redelivery]) -> Iterator[Slice]:
        """Yield the events of dead letters that are tried again."""
        named = {pipeline.name: pipeline for pipeline in self._pipelines}
        for record in records:
            pipeline = named.get(record.pipeline or "")
            if pipeline is not None:
                events = self._rows(numbers_of([(first, last) for first, last in record.seqs]), LOG_SCHEMA.empty_table())
                yield Slice(pipeline, f"again{record.id}", self._placed(events), record.letter)

    def _gathered(self, table: pa.Table, now: int) -> Iterator[Slice]:
        """Yield the runs that are due, and hold the rest."""
        held = self._saved.held
        for pipeline, rows in zip(self._pipelines, route(table.column("triggers"), self._pipelines), strict=True):
            if pipeline.batch == "micro" and pipeline.name not in held:
                if len(rows):
                    yield Slice(pipeline, "", table if len(rows) == table.num_rows else table.take(pa.array(rows)))
                continue
            mine = table.take(pa.array(rows))
            before = held.pop(pipeline.name, Held())
            count = len(before.seqs) + mine.num_rows
            if not count:
                continue
            last = now if mine.num_rows else before.last
            sizes = cut(pipeline.batch, count, before.first if before.seqs else now, last, now)
            due, start = sum(sizes), 0
            together = self._together(before, mine, due)
            for number, size in enumerate(sizes):
                yield Slice(pipeline, f"{number}" if number else "", together.slice(start, size))
                start += size
            if due < count:
                first = before.first if due < len(before.seqs) else now
                held[pipeline.name] = _left(before, mine, due, first, last)

    def _together(self, before: Held, mine: pa.Table, due: int) -> pa.Table:
        """Return the `due` oldest of what was held and what came."""
        if not due:
            return mine.slice(0, 0)
        taken = min(due, len(before.seqs))
        seqs = np.array(before.seqs[:taken], dtype=np.int64)
        events = self._rows(seqs, LOG_SCHEMA.empty_table())
        old = _ordered(
            events, np.array(before.positions[:taken], dtype=np.int64), pa.array(before.marks[:taken], pa.string()), np.zeros(taken)
        )
        return pa.concat_tables([old, mine.slice(0, due - taken)]).combine_chunks()

    def _holdings(self, bounds: Bounds, released: int) -> Holdings:
        kernel, waiting = self._kernel, self._kernel.waiting
        held = [seq for each in self._saved.held.values() for seq in each.seqs]
        needed = [*held, *(seq for seq, _ in self._saved.pending), *(waiting.seq.tolist() if len(waiting) else [])]
        told = waits(waiting.seq, waiting.since, bounds.clock, _MOST_TOLD)
        report = ScopeReport(
            read=bounds.to - bounds.after,
            released=released,
            held=len(held),
            longest=told[0].seconds if told else 0.0,
            holds=self._saved.holds,
            hold_seconds=self._saved.hold_micros / _MICROS,
            waits=told,
            lookback=self._lookback / _MICROS,
        )
        kept = min(needed, default=bounds.to + 1) - 1
        return Holdings(kernel.position, len(kernel), kernel.lost, kernel.late, kernel.cycles, kept, report)


def _ordered(events: pa.Table, positions: Any, marks: pa.Array, waited: Any) -> pa.Table:
    """Return LOG_SCHEMA rows as ORDERED_SCHEMA."""
    added = {"position": pa.array(positions, pa.int64()), "mark": marks, "waited": pa.array(waited, pa.float64())}
    columns = [added[name] if name in added else events.column(name) for name in ORDERED_SCHEMA.names]
    return pa.table(columns, schema=ORDERED_SCHEMA)


def _replaced(events: pa.Table, triggers: list[list[str]]) -> pa.Table:
    at = events.schema.get_field_index("triggers")
    return events.set_column(at, events.schema.field(at), pa.array(triggers, pa.list_(pa.string())))


def _with_triggers(table: pa.Table, pairs: list[tuple[int, str]]) -> pa.Table:
    """Return the events with these further triggers."""
    if not pairs:
        return table
    more: dict[int, list[str]] = {}
    for seq, trigger in pairs:
        more.setdefault(seq, []).append(trigger)
    triggers = [
        [*old, *more.get(seq, [])] for seq, old in zip(table.column("seq").to_pylist(), table.column("triggers").to_pylist(), strict=True)
    ]
    return _replaced(table, triggers)


def _left(before: Held, mine: pa.Table, due: int, first: int, last: int) -> Held:
    """Return what is still held after the `due` oldest went."""
    rest = mine.slice(max(0, due - len(before.seqs)))
    return Held(
        [*before.seqs[due:], *rest.column("seq").to_pylist()],
        [*before.positions[due:], *rest.column("position").to_pylist()],
        [*before.marks[due:], *rest.column("mark").to_pylist()],
        first,
        last,
    )
