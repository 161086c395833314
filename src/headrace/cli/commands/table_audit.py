"""`headrace audit --tables`: is each run in its table, and each event in a run?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from headrace.cli.console import out
from headrace.cli.credentials import for_looking
from headrace.cli.progress import ShownProgress
from headrace.cli.rendering import show
from headrace.client.admin.client import AdminClient
from headrace.client.scope_audit import read_firings, read_ledger, read_letters, read_open_runs, read_runs, read_state
from headrace.settings import Settings
from headrace.wire.pipelines.plans import OpenRun
from headrace.wire.pipelines.scope_audit import ScopeLedger, TablesAudit

if TYPE_CHECKING:
    from headrace.project import Project

MAX_PROBLEMS = 100
"""Problems that are shown; --json has all."""

READS = 5
"""Attempts to read the state of a scope between two of its plans."""

_OF_PIPELINE = ("events", "succeeded", "dead_lettered", "open", "pending", "missing")
_OF_TABLE = ("matched", "open", "older", "other_scopes", "other_logs")


def audit_tables(settings: Settings, project: Project, tables: Path, first: int) -> TablesAudit:
    """Compare the project's tables, its runs and its events from `first` on.

    What may move meanwhile is read first: an open run that ends is among the runs, and a run's rows are in its table before it ends.

    Raises:
        ApiRefused: The project has no scope yet.
        PipelineError: There is no such folder of tables.
    """
    from headrace.pipeline.table_audit import audit_pipeline, compare_tables, expected_events, pending_of
    from headrace.pipeline.tables.contents import read_tables

    with AdminClient(settings.url, token=for_looking(settings)) as client, ShownProgress("files", transient=True) as progress:
        ledger, state, opened = _scope(client, project.name)
        first = max(first, ledger.first)
        letters = list(read_letters(client, project.name))
        runs = list(read_runs(client, project.name))
        firings = read_firings(client, ledger, first)
        compared = compare_tables(ledger, runs, opened, read_tables(tables, progress.tell))
    pending = pending_of(ledger, state, opened)
    problems = list(compared.problems)
    pipelines = []
    for name, pipeline in project.pipelines.items():
        taken = filter(pipeline.takes, firings.names.values())
        expected = expected_events(firings.names, firings.seqs, firings.fired, taken)
        audit, found = audit_pipeline(name, expected, ledger, runs, letters, pending)
        pipelines.append(audit)
        problems += found
    return TablesAudit(
        scope=project.name,
        clean=not problems,
        exact=not pending.uncounted,
        first=first,
        last=ledger.cursor,
        runs=len(runs),
        unverified=compared.unverified,
        tables=compared.tables,
        pipelines=pipelines,
        problems=problems,
    )


def show_tables(audit: TablesAudit) -> None:
    """Show the audit as tables."""
    out.print(f"[bold]{escape(audit.scope)}[/]: {audit.runs:,} runs; events {audit.first:,} to {audit.last:,} were checked")
    if audit.unverified:
        out.print(f"  {audit.unverified:,} runs are older than the history of their Delta table, and were not compared with it.")
    if not audit.exact:
        out.print("  Of the events that wait or are held only the number is known: the scope moved on meanwhile, or is of another version.")
    columns = ["pipeline", *(f"#{name.replace('_', '-')}" for name in _OF_PIPELINE)]
    rows = [(one.pipeline, *(getattr(one, name) for name in _OF_PIPELINE)) for one in audit.pipelines]
    show(columns, rows, empty="The project has no pipelines.")
    columns = ["table", "#files or commits", "#rows", *(f"#{name.replace('_', '-')}" for name in _OF_TABLE)]
    files = [(one.table, one.entries, one.rows, *(getattr(one, name) for name in _OF_TABLE)) for one in audit.tables]
    show(columns, files, empty="There are no tables.")
    if audit.problems:
        shown = [(problem.kind, problem.what) for problem in audit.problems[:MAX_PROBLEMS]]
        show(["problem", "!~what"], shown, empty="")
    if len(audit.problems) > MAX_PROBLEMS:
        out.print(f"{len(audit.problems) - MAX_PROBLEMS:,} more problems: --json shows all.")


def _scope(client: AdminClient, scope: str) -> tuple[ScopeLedger, dict[str, bytes] | None, list[OpenRun]]:
    """Return how far a scope is, its state then (None where it has moved on each time), and its open runs."""
    for _ in range(READS):
        ledger = read_ledger(client, scope)
        opened = read_open_runs(client, ledger)
        state = read_state(client, ledger)
        after = read_ledger(client, scope)
        if (after.incarnation, after.batch) == (ledger.incarnation, ledger.batch):
            return ledger, state, opened
    return ledger, None, opened
