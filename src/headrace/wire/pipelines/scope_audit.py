"""The API's record of a scope's runs, for an audit of its tables.

GET /api/v1/scopes/{scope}/ledger, …/ledger/runs, …/ledger/dead-letters and …/ledger/firings.
"""

from __future__ import annotations

from typing import Literal

from headrace.wire.base import Timestamp, WireModel

ProblemKind = Literal["missing", "doubled", "different", "unknown", "foreign", "unreadable"]


class ScopeLedger(WireModel):
    """The progress of a scope, and how many events are `waiting` for a leader or `held` for a window.

    `batch` is that of the last plan, `cursor` the last event that the scope has read, `last_redelivery_id` the last redelivery. `first` is
    the first event that an audit can check: earlier ones came before the scope began or before its oldest stored run, or are deleted.
    """

    scope: str
    log: str
    incarnation: str
    first: int
    cursor: int
    last_redelivery_id: int
    batch: int
    waiting: int
    held: int


class LedgerRun(WireModel):
    """A run that succeeded. `rows` is null if its pipeline has no table. `seqs` are its events, as closed ranges."""

    run_id: str
    incarnation: str
    pipeline: str
    batch: int
    attempt: int
    started: Timestamp
    rows: int | None
    seqs: list[tuple[int, int]]


class LedgerRuns(WireModel):
    """A page of a scope's succeeded runs, of all incarnations, by id. Continue with `after`, which is null at the end."""

    runs: list[LedgerRun]
    after: str | None


class LedgerDeadLetter(WireModel):
    """The events of a dead letter, in any state."""

    id: str
    pipeline: str
    seqs: list[tuple[int, int]]


class LedgerDeadLetters(WireModel):
    """A page of a scope's dead letters, by id. Continue with `after`, which is null at the end."""

    dead_letters: list[LedgerDeadLetter]
    after: str | None


class FiringPosition(WireModel):
    """A firing: its trigger and its event."""

    seq: int
    trigger: int


class LedgerFirings(WireModel):
    """A page of the firings that a scope has read, by seq and trigger: `fired[n]` fired on the event `seqs[n]`.

    `names` has the names of the triggers, by id. Continue with `after`, which is null at the end.
    """

    names: dict[int, str]
    seqs: list[int]
    fired: list[int]
    after: FiringPosition | None


class AuditProblem(WireModel):
    """One problem. `what` names the file or the events, and their expected state."""

    kind: ProblemKind
    what: str


class TableAudit(WireModel):
    """The contents of a table: files or commits of runs, and their rows.

    `matched` belong to a succeeded run in the API, `open` to a run without a report, `older` to a run that retention deleted or to an
    earlier incarnation of the scope. `other_scopes` and `other_logs` belong to other writers.
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
    """The checked events of a pipeline: in a succeeded run, in a dead letter, or in an open run.

    `pending` events wait or are held. All others are `missing`.
    """

    pipeline: str
    events: int
    succeeded: int
    dead_lettered: int
    open: int
    pending: int
    missing: int


class TablesAudit(WireModel):
    """Whether each run is in its table, and each event in a run, from the event `first` to `last`.

    `unverified` runs are older than the history of their table. `exact` says whether the pending events are known, and not only their
    number.
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
