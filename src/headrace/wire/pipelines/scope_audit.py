"""What the API knows of a scope's runs, for an audit of its tables. GET /api/v1/scopes/{scope}/ledger, …/runs, …/letters and …/firings."""

from __future__ import annotations

from typing import Literal

from headrace.wire.base import Timestamp, WireModel

ProblemKind = Literal["missing", "doubled", "different", "unknown", "foreign", "unreadable"]


class ScopeLedger(WireModel):
    """How far a scope is, and how many events are `waiting` for a leader or `held` for a window.

    `batch` is that of the last plan, `cursor` the last event that the scope has read, `again` the last redelivery. `first` is the first
    event that an audit can check: earlier ones came before the scope began or before the oldest run that is kept, or are deleted.
    """

    scope: str
    log: str
    incarnation: str
    first: int
    cursor: int
    again: int
    batch: int
    waiting: int
    held: int


class LedgerRun(WireModel):
    """A run that succeeded. `rows` is None where its pipeline has no table; `seqs` are the events, as closed ranges."""

    run_id: str
    incarnation: str
    pipeline: str
    batch: int
    attempt: int
    started: Timestamp
    rows: int | None
    seqs: list[tuple[int, int]]


class LedgerRuns(WireModel):
    """A page of a scope's runs that succeeded, of all incarnations, by id; ask for what comes `after` until it is None."""

    runs: list[LedgerRun]
    after: str | None


class LedgerLetter(WireModel):
    """The events of a dead letter, in any state."""

    id: str
    pipeline: str
    seqs: list[tuple[int, int]]


class LedgerLetters(WireModel):
    """A page of a scope's dead letters, by id; ask for what comes `after` until it is None."""

    letters: list[LedgerLetter]
    after: str | None


class FiringPlace(WireModel):
    """A firing: of which trigger, on which event."""

    seq: int
    trigger: int


class LedgerFirings(WireModel):
    """A page of the firings that a scope has read, by seq and trigger: `fired[n]` fired on the event `seqs[n]`.

    `names` has the names of the triggers, by id. Ask for what comes `after` until it is None.
    """

    names: dict[int, str]
    seqs: list[int]
    fired: list[int]
    after: FiringPlace | None


class AuditProblem(WireModel):
    """One thing that is wrong: `what` names the file or the events, and what they should be."""

    kind: ProblemKind
    what: str


class TableAudit(WireModel):
    """What a table has: files or commits of runs, and their rows.

    Of these, `matched` are of a run that the API has as succeeded, `open` of one that is not reported yet, `older` of one that retention
    has deleted or of an earlier incarnation of the scope, `other_scopes` and `other_logs` of other writers.
    """

    table: str
    entries: int
    rows: int
    matched: int
    open: int
    older: int
    other_scopes: int
    other_logs: int


class PipelineAudit(WireModel):
    """The events that a pipeline takes, of those that were checked: in a run that succeeded, in a dead letter, or in an open run.

    `pending` events are waiting or held. What is in none of these is `missing`.
    """

    pipeline: str
    events: int
    succeeded: int
    dead_lettered: int
    open: int
    pending: int
    missing: int


class TablesAudit(WireModel):
    """Whether each run is in its table, and each event in a run: checked from the event `first` to `last`.

    `unverified` runs are older than the history of their Delta table. `exact` says whether pending events are known one by one; else only
    their number is.
    """

    scope: str
    clean: bool
    exact: bool
    first: int
    last: int
    runs: int
    unverified: int
    tables: list[TableAudit]
    pipelines: list[PipelineAudit]
    problems: list[AuditProblem]
