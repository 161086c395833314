"""Compare the contents of tables with the runs in the API, and the runs with the events that pipelines take."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.core.ranges import Ranges, numbers_of, ranges_of
from headrace.pipeline.ordering.orderer import pending_events
from headrace.pipeline.runs.identity import RunIdentity
from headrace.pipeline.runs.slices import Slice
from headrace.pipeline.tables.contents import Entry, TableContents
from headrace.wire.pipelines.plans import OpenRun
from headrace.wire.pipelines.scope_audit import (
    AuditProblem,
    LedgerDeadLetter,
    LedgerRun,
    PipelineAudit,
    ProblemKind,
    ScopeLedger,
    TableAudit,
)

MAX_RANGES: Final = 8
"""Ranges of events in one problem's text."""

Seqs = npt.NDArray[np.int64]

_NONE: Final[Seqs] = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class TablesCompared:
    """The tables compared with the runs of a scope. `unverified` runs are older than the history of their table."""

    tables: list[TableAudit]
    problems: list[AuditProblem]
    unverified: int


def compare_tables(
    ledger: ScopeLedger, runs: Sequence[LedgerRun], opened: Iterable[OpenRun], contents: Iterable[TableContents]
) -> TablesCompared:
    """Check that each run with rows is in the tables exactly once, and nothing else. The tables must be read after the runs."""
    comparison = _Comparison(ledger, runs, {(run.pipeline, run.batch, run.part) for run in opened})
    tables_read = list(contents)
    tables = [comparison.add(table) for table in tables_read]
    horizon = max((table.since for table in tables_read if table.since is not None), default=None)
    missing = [run for run in comparison.unmatched.values() if run.run_id not in comparison.matched]
    unverified = [run for run in missing if horizon is not None and run.started < horizon]
    lost = sorted((run for run in missing if horizon is None or run.started >= horizon), key=lambda run: (run.batch, run.pipeline))
    comparison.problems += [
        _problem("missing", f"No table has the {run.rows:,} rows of the run {run.run_id}: {_of(run.pipeline, run.batch)}.") for run in lost
    ]
    return TablesCompared(tables, comparison.problems, len(unverified))


@dataclass(slots=True)
class _Comparison:
    ledger: ScopeLedger
    runs: Sequence[LedgerRun]
    open: Set[tuple[str, int, str]]
    problems: list[AuditProblem] = field(default_factory=list)
    unmatched: dict[str, LedgerRun] = field(default_factory=dict)
    matched: dict[str, str] = field(default_factory=dict)
    _entries_by_run: dict[tuple[str, str, int, str], str] = field(default_factory=dict)
    _batches: dict[tuple[str, int], list[LedgerRun]] = field(default_factory=lambda: defaultdict(list))
    _oldest: dict[tuple[str, str], LedgerRun] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for run in self.runs:
            if run.rows is not None:
                self.unmatched[run.run_id] = run
                self._batches[run.pipeline, run.batch].append(run)
            kind = (run.incarnation, run.pipeline)
            if kind not in self._oldest or (run.batch, run.started) < (self._oldest[kind].batch, self._oldest[kind].started):
                self._oldest[kind] = run

    def add(self, table: TableContents) -> TableAudit:
        """Compare one table."""
        self.problems += [_problem("unreadable", text) for text in table.unreadable]
        self.problems += [_problem("missing", f"The table {table.table!r} has lost {name}.") for name in table.lost]
        counts = Counter(self._kind(entry) for entry in table.entries)
        return TableAudit(
            table=table.table,
            entries=len(table.entries),
            rows=sum(entry.rows for entry in table.entries),
            **{name: counts[name] for name in ("matched", "open", "older", "other_scopes", "other_logs")},
        )

    def _kind(self, entry: Entry) -> str:
        run = entry.run
        if run is None:
            self.problems.append(_problem("foreign", f"Another program wrote {entry.where}: its {entry.rows:,} rows are of no run."))
            return "foreign"
        if run.scope != self.ledger.scope:
            return "other_scopes"
        if run.log != self.ledger.log:
            return "other_logs"
        key = (run.incarnation, run.pipeline, run.batch, run.part)
        first = self._entries_by_run.setdefault(key, entry.where)
        if first != entry.where:
            both = f"{_of(run.pipeline, run.batch)} is in the tables twice: {first} and {entry.where}"
            self.problems.append(_problem("doubled", f"The run {run.run_id} of {both}."))
            return "doubled"
        known = self._run_of(run)
        return self._unknown(entry, run) if known is None else self._match(entry, run, known)

    def _match(self, entry: Entry, run: RunIdentity, known: LedgerRun) -> str:
        self.matched[known.run_id] = entry.where
        if entry.rows != known.rows:
            rows = f"{entry.rows:,} rows, and the run {run.run_id} stored {known.rows:,}"
            self.problems.append(_problem("different", f"{entry.where} has {rows}: {_of(run.pipeline, run.batch)}."))
        return "matched"

    def _run_of(self, run: RunIdentity) -> LedgerRun | None:
        """Return the run of these rows, or None. It may be reported as a later attempt than the one that stored them."""
        known = self.unmatched.get(run.run_id)
        if known is not None:
            return known
        candidates = (each for each in self._batches.get((run.pipeline, run.batch), ()) if each.run_id not in self.matched)
        return next((each for each in candidates if each.run_id == run.id_of(each.attempt)), None)

    def _unknown(self, entry: Entry, run: RunIdentity) -> str:
        """Return the kind of rows without a reported run: the run is open, or retention has deleted its report."""
        current = run.incarnation == self.ledger.incarnation
        if current and run.batch > self.ledger.batch:
            return "open"  # planned after the ledger was read
        if current and (run.pipeline, run.batch, run.part) in self.open:
            return "open"
        oldest = self._oldest.get((run.incarnation, run.pipeline))
        if oldest is None or run.batch < oldest.batch:
            return "older"
        if run.batch == oldest.batch and entry.written < oldest.started.timestamp():
            return "older"
        text = f"The API has no run for {entry.where}: {entry.rows:,} rows of {_of(run.pipeline, run.batch)}, run {run.run_id}."
        self.problems.append(_problem("unknown", text))
        return "unknown"


@dataclass(frozen=True, slots=True)
class Pending:
    """The events of a scope in progress: in open runs and held by pipeline, and waiting.

    `uncounted` is the number of waiting or held events whose seqs are unknown.
    """

    open: Mapping[str, Seqs]
    held: Mapping[str, Seqs]
    waiting: Seqs
    uncounted: int = 0


def pending_of(ledger: ScopeLedger, state: Mapping[str, bytes] | None, opened: Iterable[OpenRun]) -> Pending:
    """Return the pending events of a scope. `state` is that of the ledger's last plan, or None if it could not be read."""
    slices: dict[str, list[Seqs]] = defaultdict(list)
    for run in opened:
        slices[run.pipeline].append(Slice.unpack(run.data).seqs)
    in_runs = {pipeline: np.unique(np.concatenate(parts)) for pipeline, parts in slices.items()}
    if state is not None:
        try:
            waiting, held = pending_events(state)
        except (ValueError, KeyError):
            waiting, held = _NONE, {}  # of another version
        if (len(waiting), sum(map(len, held.values()))) == (ledger.waiting, ledger.held):
            return Pending(in_runs, held, waiting)
    return Pending(in_runs, {}, _NONE, ledger.waiting + ledger.held)


def audit_pipeline(
    pipeline: str,
    expected: Seqs,
    ledger: ScopeLedger,
    runs: Iterable[LedgerRun],
    dead_letters: Iterable[LedgerDeadLetter],
    pending: Pending,
) -> tuple[PipelineAudit, list[AuditProblem]]:
    """Check that each of the `expected` events (ascending seqs) is in exactly one run of the pipeline, in a dead letter, or pending."""
    mine = [run for run in runs if run.pipeline == pipeline and run.incarnation == ledger.incarnation]
    taken, counts = np.unique(_numbers(run.seqs for run in mine), return_counts=True)
    dead = np.setdiff1d(_numbers(one.seqs for one in dead_letters if one.pipeline == pipeline), taken)
    rest = np.setdiff1d(np.setdiff1d(expected, taken, assume_unique=True), dead)
    in_runs = np.intersect1d(rest, pending.open.get(pipeline, _NONE))
    rest = np.setdiff1d(rest, in_runs)
    known = np.intersect1d(rest, np.concatenate([pending.waiting, pending.held.get(pipeline, _NONE)]))
    rest, room = np.setdiff1d(rest, known), pending.uncounted
    problems: list[AuditProblem] = []
    twice = taken[counts > 1]
    if len(twice):
        problems.append(_problem("doubled", f"{_events(twice)} in two runs or more of the pipeline {pipeline!r}."))
    missing = max(0, len(rest) - room)
    if missing:
        problems.append(_problem("missing", _missing(pipeline, rest, room, taken)))
    audit = PipelineAudit(
        pipeline=pipeline,
        events=len(expected),
        succeeded=len(np.intersect1d(expected, taken, assume_unique=True)),
        dead_lettered=len(np.intersect1d(expected, dead)),
        open=len(in_runs),
        pending=len(known) + len(rest) - missing,
        missing=missing,
    )
    return audit, problems


def expected_events(names: Mapping[int, str], seqs: Seqs, fired: Seqs, takes: Iterable[str]) -> Seqs:
    """Return the seqs, ascending, on which one of the triggers in `takes` fired. `names` are the triggers' names by id."""
    triggers = set(takes)
    ids = np.array([number for number, name in names.items() if name in triggers], dtype=np.int64)
    return np.unique(seqs[np.isin(fired, ids)])


def _missing(pipeline: str, rest: Seqs, room: int, taken: Seqs) -> str:
    limit = f", and at most {room:,} can be waiting or held" if room else ""
    text = f"{_events(rest)} in no run of the pipeline {pipeline!r}{limit}."
    before = int(np.searchsorted(rest, taken[0])) if len(taken) else 0
    if len(taken) and before == len(rest):
        text += f" All came before its first event {taken[0]}: if the pipeline was added to the project then, check --from {taken[0]}."
    return text


def _numbers(parts: Iterable[Ranges]) -> Seqs:
    arrays = [numbers_of(part) for part in parts]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)


def _events(seqs: Seqs) -> str:
    ranges = ranges_of(seqs)
    texts = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges[:MAX_RANGES])
    more = ", …" if len(ranges) > MAX_RANGES else ""
    return f"The event {texts} is" if len(seqs) == 1 else f"{len(seqs):,} events ({texts}{more}) are"


def _of(pipeline: str, batch: int) -> str:
    return f"batch {batch} of the pipeline {pipeline!r}"


def _problem(kind: ProblemKind, what: str) -> AuditProblem:
    return AuditProblem(kind=kind, what=what[:1].upper() + what[1:])
