"""The ordering of a scope: each batch of the log becomes a plan, with the runs of each pipeline and the scope's new state.

The kernel works on slim columns. Waiting and held events are stored by seq; their payloads stay in the log, which
retains them until the scope is past them. The plan has everything that the next batch depends on, so a driver that has
stored it continues from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from headrace.core.batching import due_batches
from headrace.core.ranges import numbers_of
from headrace.pipeline.kernel.forest import Rows
from headrace.pipeline.kernel.kernel import Kernel
from headrace.pipeline.log_reader import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, LogReader, first_within
from headrace.pipeline.ordering.bounds import Bounds, Moment
from headrace.pipeline.ordering.event_positions import EventPositions
from headrace.pipeline.ordering.follower_holds import KINDS, FollowerHolds
from headrace.pipeline.ordering.held_events import HeldEvents
from headrace.pipeline.ordering.late_firings import RedeliveredFirings, new_to_pipelines
from headrace.pipeline.ordering.recent_events import RecentEvents
from headrace.pipeline.ordering.wait_statistics import histogram, waits
from headrace.pipeline.runs.routing import route
from headrace.pipeline.runs.run import Run, RunPlan
from headrace.pipeline.runs.slices import Slice
from headrace.pipeline_declaration import Pipeline
from headrace.wire.custody.events import Cursor, ScopeReport
from headrace.wire.log import LOG_SCHEMA
from headrace.wire.pipelines.plans import Plan
from headrace.wire.pipelines.runs import Redelivery
from headrace.wire.pipelines.scope_leases import ScopeLease

MAX_RUNS: Final = 10_000
"""Maximum runs of new events, and of one pipeline's held events, in one plan: the API stores it in one transaction."""
MAX_REMOVED_EVENTS: Final = 100_000
"""Maximum held events of a removed pipeline in one dead letter."""

_RECORD: Final = "scope"
_FIRST_ROWS: Final = 128
_MAX_WAITS: Final = 100
_MICROS: Final = 1_000_000


class _Record(msgspec.Struct):
    """State of a scope beside its ordering: clocks (µs), wait statistics, and the state keys of held events by pipeline."""

    wall: int = 0
    clock: int = 0
    holds: list[int] = []
    hold_micros: int = 0
    held: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Ordered:
    """A batch: the plan to store, its runs, and the number of released events."""

    plan: Plan
    runs: list[Run]
    released: int


class Orderer:
    """Orders the batches of one scope, one after the other, from the state of the last plan. `lookback` is in µs.

    A batch has up to `max_rows` and MAX_BATCH_EVENTS events of the log; so has a run of a pipeline without a batch
    policy.
    """

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        reader: LogReader,
        lease: ScopeLease,
        state: Mapping[str, bytes],
        *,
        lookback: int,
        max_rows: int,
    ) -> None:
        self._pipelines = list(pipelines)
        self._reader = reader
        self._lease = lease
        self._lookback = lookback
        self._max_rows = min(max_rows, MAX_BATCH_EVENTS)
        self._batch = lease.cursor.batch
        self._last_redelivery_id = lease.cursor.last_redelivery_id
        self._record = msgspec.msgpack.decode(state[_RECORD], type=_Record) if lease.cursor.batch else _Record()
        self._late = RedeliveredFirings(state)
        self._kernel = Kernel.restore({key: value for key, value in state.items() if key.startswith("order/")}, lookback)
        self._kernel.head = max(self._kernel.head, lease.cursor.cursor)
        self._held = {name: HeldEvents.restore(state, _held_key(number)) for name, number in self._record.held.items()}
        self._keys = {key for key in state if key.startswith("held/")}
        self._recent = RecentEvents()
        self._positions = EventPositions(reader, lease.scope, self._kernel)
        self._holds = FollowerHolds(lease.scope, reader, self._max_rows, self._held_for)

    @property
    def at(self) -> Moment:
        """The progress of the scope."""
        return Moment(self._kernel.head, self._last_redelivery_id, self._record.wall, self._record.clock)

    @property
    def max_events(self) -> int:
        """Maximum events of the log in the next batch."""
        single = sum(pipeline.batch == "each" for pipeline in self._pipelines)
        return min(self._max_rows, max(1, MAX_RUNS // single)) if single else self._max_rows

    @property
    def waits_for_time(self) -> bool:
        """Whether events wait or are held, so that the scope time must advance."""
        return bool(len(self._kernel) or any(map(len, self._held.values())) or self._late)

    @property
    def holds_for_removed(self) -> bool:
        """Whether events are held for a pipeline that the project no longer has."""
        return any(name.partition("/")[0] not in self._names for name in self._held)

    @property
    def _names(self) -> set[str]:
        return {pipeline.name for pipeline in self._pipelines}

    @property
    def holding(self) -> list[str]:
        """The pipelines that hold followers of failed events."""
        return [pipeline.name for pipeline in self._pipelines if pipeline.on_failure == "hold"]

    @property
    def has_free(self) -> set[str]:
        """The pipelines of `holding` that have events for a run, as soon as they have no open run."""
        return {pipe.name for pipe in self._pipelines if pipe.on_failure == "hold" and self._holds.has_free(pipe)}

    def has_news(self, idle: Collection[str]) -> bool:
        """Whether one of the `idle` pipelines may have a run now because its dead letters changed. Queries the API."""
        return any(pipe.on_failure == "hold" and pipe.name in idle and self._holds.has_news(pipe) for pipe in self._pipelines)

    def order(self, bounds: Bounds, idle: Collection[str] = (), returned: Sequence[Run] = ()) -> Ordered:
        """Order one batch of the log. It may end before `bounds.to` if events are large.

        `idle` are pipelines without an open run; among pipelines that hold followers, only these get runs. `returned`
        are their failed runs with several events.

        Raises:
            PipelineError: The log no longer has an event that the scope needs.
        """
        arrived = self._reader.read(bounds.after, bounds.to)
        if arrived.num_rows:
            bounds = bounds._replace(to=arrived.column("seq")[-1].as_py())
        self._reader.prefetch(bounds.to)
        step = self._kernel.step(arrived, bounds.clock)
        self._recent.add(arrived)
        plan = RunPlan(self._batch + 1)
        for run in returned:
            self._holds.take_back(run, bounds.clock)
        released = self._positions.released(step)
        records = [each for each in self._reader.redeliveries(bounds.redelivery_after, bounds.redelivery_to) if self._is_due(each)]
        joined, passed = self._late.take([each for each in records if each.trigger is not None], step.seqs, self._kernel)
        memory = _Memory()
        self._distribute(plan, self._in_parts(released, joined), memory, bounds.clock)
        fired, new = new_to_pipelines(passed, self._pipelines)
        if fired:
            self._distribute(plan, self._in_parts(self._positions.of(fired), fired, only=True), memory, bounds.clock, new)
        self._plan_redriven(plan, [each for each in records if each.dead_letter is not None and each.scope == self._lease.scope])
        self._plan_held(plan, bounds.clock, idle)
        self._record.wall, self._record.clock = bounds.wall, bounds.clock
        self._record.holds = histogram(self._record.holds, step.waited)
        self._record.hold_micros += int(step.waited.sum())
        self._batch, self._last_redelivery_id = plan.batch, bounds.redelivery_to
        stored = Plan(
            epoch=self._lease.epoch,
            cursor=self._cursor(bounds, len(step.seqs)),
            runs=plan.planned,
            slices=plan.slices,
            state=self._changes(),
            positions=self._positions.blocks(),
            taken_back=[(run.batch, run.number) for run in returned],
        )
        return Ordered(stored, plan.runs, len(step.seqs))

    def _in_parts(self, events: Slice, triggers: Mapping[int, Sequence[str]], *, only: bool = False) -> Iterator[tuple[Slice, pa.Table]]:
        """Yield the events in order, with their rows, in parts that fit in memory.

        `triggers`, by seq, are additional triggers of an event, or with `only` its only ones.
        """
        start = 0
        while start < len(events):
            rows = self._first_rows(events.seqs[start : start + self._max_rows])
            part = events.take(np.arange(start, start + rows.num_rows))
            start += rows.num_rows
            if triggers:
                logged = [[] if only else names for names in rows.column("triggers").to_pylist()]
                overrides = {row: [*logged[row], *triggers[seq]] for row, seq in enumerate(part.seqs.tolist()) if seq in triggers}
                part = Slice(part.seqs, part.positions, part.marks, overrides)
            yield part, part.table(rows)

    def _first_rows(self, seqs: Rows) -> pa.Table:
        """Return the first of these events as LOG_SCHEMA: all, or the first within MAX_BATCH_BYTES."""
        parts: list[pa.Table] = []
        at, size, remaining = 0, len(seqs) if self._recent.has(seqs).all() else _FIRST_ROWS, MAX_BATCH_BYTES
        while at < len(seqs) and remaining > 0:
            rows = self._rows(seqs[at : at + size])
            parts.append(first_within(rows, "payload", remaining))
            if parts[-1].num_rows < rows.num_rows:
                break
            at, size, remaining = at + size, 2 * size, remaining - rows.nbytes
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts)

    def _rows(self, seqs: Rows) -> pa.Table:
        """Return the events with these seqs as LOG_SCHEMA, in this order."""
        if not len(seqs):
            return LOG_SCHEMA.empty_table()
        here = self._recent.has(seqs)
        if here.all():
            return self._recent.take(seqs)
        ascending = np.sort(seqs)
        picked = self._reader.get_by_seq(np.sort(seqs[~here]).tolist())
        if here.any():
            picked = pa.concat_tables([self._recent.take(np.sort(seqs[here])), picked]).sort_by("seq")
        return picked.take(pa.array(np.searchsorted(ascending, seqs)))

    def _is_due(self, record: Redelivery) -> bool:
        """Whether the redelivery is for this scope. From before the scope began, only late firings on its own events are."""
        return record.id > self._lease.begin_redelivery_id or (record.trigger is not None and record.seq > self._lease.begin_seq)

    def _distribute(
        self,
        plan: RunPlan,
        parts: Iterator[tuple[Slice, pa.Table]],
        memory: _Memory,
        now: int,
        new: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Plan runs of pipelines without batching, and hold the events of the others.

        With `new`, a pipeline gets only these events: it has had the others.
        """
        for part, table in parts:
            in_memory = memory.takes(table)
            for pipeline, rows in zip(self._pipelines, route(table.column("triggers"), self._pipelines), strict=True):
                if new is not None:
                    rows = rows[np.isin(part.seqs[rows], new.get(pipeline.name, []))]  # noqa: PLW2901
                if not len(rows):
                    continue
                everything = len(rows) == len(part)
                mine = part if everything else part.take(rows)
                if pipeline.batch not in ("micro", "each") or pipeline.on_failure == "hold" or self._holds_for(pipeline.name):
                    self._held_for(pipeline.name).append(mine.seqs, mine.positions, mine.marks, now)
                    continue
                events = (table if everything else table.take(pa.array(rows))) if in_memory else None
                if pipeline.batch == "micro":
                    plan.add(pipeline, mine, events)
                    continue
                for row in range(len(mine)):
                    plan.add(pipeline, mine.take(np.array([row])), None if events is None else events.slice(row, 1))

    def _plan_redriven(self, plan: RunPlan, redriven: Sequence[Redelivery]) -> None:
        """Plan a run for each redriven dead letter, with its original slice."""
        by_name = {pipeline.name: pipeline for pipeline in self._pipelines}
        for record in redriven:
            seqs = numbers_of([(first, last) for first, last in record.seqs])
            if not len(seqs):
                continue
            events = self._positions.of(seqs.tolist()) if record.slice is None else Slice.unpack(record.slice)
            name = record.pipeline or ""
            plan.add(by_name.get(name, name), events, part=f"again{record.id}", dead_letter=record.dead_letter)

    def _plan_held(self, plan: RunPlan, now: int, idle: Collection[str]) -> None:
        """Plan runs of held events that are due, and of all events that are held for removed pipelines."""
        by_name = {pipeline.name: pipeline for pipeline in self._pipelines}
        for pipe in self._pipelines:
            for due in self._holds.runs(pipe, now) if pipe.on_failure == "hold" and pipe.name in idle else ():
                plan.add(pipe, due)
        full = set[str]()  # pipelines whose further sequences wait for the next plan
        for sequence, held in sorted(self._held.items(), key=lambda item: _sequence_order(item[0])):
            name = sequence.partition("/")[0]
            pipeline = by_name.get(name)
            if name in full or (pipeline is not None and pipeline.on_failure == "hold"):
                continue
            if pipeline is None:
                sizes = [min(MAX_REMOVED_EVENTS, len(held) - start) for start in range(0, len(held), MAX_REMOVED_EVENTS)]
            else:
                sizes = due_batches(pipeline.batch, len(held), held.first, held.last, now)
                # An earlier policy may have held any number.
                if pipeline.batch == "micro" or (sequence != name and pipeline.batch != "each"):
                    sizes = [min(self._max_rows, len(held) - start) for start in range(0, len(held), self._max_rows)]
            for size in sizes[:MAX_RUNS]:
                due = Slice(*held.take(size))
                plan.add(pipeline or name, due, due.table(self._rows(due.seqs)) if self._recent.has(due.seqs).all() else None)
            if len(sizes) > MAX_RUNS:
                full.add(name)

    def _holds_for(self, pipeline: str) -> bool:
        """Whether events of the pipeline are held."""
        return any(pipeline + kind in self._held for kind in KINDS)

    def _held_for(self, name: str) -> HeldEvents:
        if name not in self._held:
            number = 1 + max(self._record.held.values(), default=0)
            self._record.held[name] = number
            self._held[name] = HeldEvents(_held_key(number))
        return self._held[name]

    def _changes(self) -> dict[str, bytes | None]:
        """Return the changes of the state since the last plan."""
        changes: dict[str, bytes | None] = dict(self._kernel.changes())
        for name, held in list(self._held.items()):
            changes |= held.changes()
            if not len(held):
                prefix = _held_key(self._record.held.pop(name))
                del self._held[name]
                changes |= {key: None for key in (*self._keys, *changes) if key.startswith(prefix)}
        changed = {key for key, value in changes.items() if key.startswith("held/") and value is not None}
        self._keys = (self._keys | changed) - {key for key, value in changes.items() if value is None}
        return {**changes, **self._late.changes(), _RECORD: msgspec.msgpack.encode(self._record)}

    def _cursor(self, bounds: Bounds, released: int) -> Cursor:
        kernel = self._kernel
        waiting = waits(*kernel.oldest(_MAX_WAITS), bounds.clock)
        report = ScopeReport(
            released=released,
            held=sum(map(len, self._held.values())),
            holds=self._record.holds,
            hold_seconds=self._record.hold_micros / _MICROS,
            waits=waiting,
            lookback=self._lookback / _MICROS,
        )
        needed = [held.lowest for held in self._held.values() if held.lowest is not None]
        needed += self._late.seqs
        needed += [] if kernel.lowest is None else [kernel.lowest]
        return Cursor(
            cursor=bounds.to,
            batch=self._batch,
            ordered=kernel.position,
            waiting=len(kernel),
            lost=kernel.lost,
            late=kernel.late,
            cycles=kernel.cycles,
            low_watermark=min([bounds.to, *(seq - 1 for seq in needed)]),
            last_redelivery_id=bounds.redelivery_to,
            report=report,
        )


class _Memory:
    """Tracks the tables that a plan retains in memory: up to MAX_BATCH_BYTES, and the first in any case."""

    def __init__(self) -> None:
        self._bytes = 0

    def takes(self, table: pa.Table) -> bool:
        """Return whether the plan also retains this table."""
        fits = self._bytes == 0 or self._bytes + table.nbytes <= MAX_BATCH_BYTES
        self._bytes += table.nbytes if fits else 0
        return fits


def pending_events(state: Mapping[str, bytes]) -> tuple[Rows, dict[str, Rows]]:
    """Return the seqs of the waiting events of a state, and of the held events by pipeline.

    Raises:
        ValueError: It is not a complete state of this version.
    """
    record = msgspec.msgpack.decode(state[_RECORD], type=_Record) if _RECORD in state else _Record()
    waiting = Kernel.restore({key: value for key, value in state.items() if key.startswith("order/")}, 0).waiting.seq
    held: dict[str, list[Rows]] = {}
    for name, number in record.held.items():
        held.setdefault(name.partition("/")[0], []).append(HeldEvents.restore(state, _held_key(number)).seqs)
    return waiting, {name: np.concatenate(parts) for name, parts in held.items()}


def _sequence_order(sequence: str) -> tuple[str, int]:
    """Return the sort key of a sequence among those of its pipeline, for pipelines that no longer hold followers."""
    name, slash, kind = sequence.partition("/")
    return name, KINDS.index(slash + kind)


def _held_key(number: int) -> str:
    return f"held/{number}/"
