"""`headrace audit`: prove that no event is missing, in the accounts of the streams or in the tables of the pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from headrace.cli.console import err, out
from headrace.cli.credentials import admin_client
from headrace.cli.groups import INSPECT, examples
from headrace.cli.options import ApiUrl, AsJson, Home, Project
from headrace.cli.progress import ProgressBars
from headrace.cli.rendering import Column, Columns, count, long, number, print_json, print_table, problem
from headrace.cli.table_folder import table_folder
from headrace.client.admin.client import AdminClient
from headrace.client.scope_audit import read_dead_letters, read_firings, read_ledger, read_open_runs, read_runs, read_state
from headrace.errors import UsageError
from headrace.settings import Settings, read_settings
from headrace.wire.base import WireModel, rfc3339
from headrace.wire.calls import admin as calls
from headrace.wire.custody.receipts import Audit, StreamAudit, TriggerAudit
from headrace.wire.pipelines.plans import OpenRun
from headrace.wire.pipelines.scope_audit import ScopeLedger, TablesAudit

if TYPE_CHECKING:
    from headrace.project import Project as DeclaredProject

MAX_PROBLEMS: Final = 100
"""Printed problems. JSON has all."""

MAX_STATE_READS: Final = 5
"""Attempts to read the state of a scope between two of its plans."""

ANSWERS: Final = ("fired", "filtered", "rejected", "dead_lettered", "failed", "pending")
OF_TRIGGER: Final = ("read", *ANSWERS, "spilled", "settled")
OF_PIPELINE: Final = ("events", "succeeded", "dead_lettered", "open", "pending", "missing")
OF_TABLE: Final = ("matched", "open", "older", "other_scopes", "other_logs")

Stream = Annotated[str | None, typer.Option("--stream", help="Only this stream.", metavar="STREAM")]
Tables = Annotated[
    str | None, typer.Option("--tables", help="Audit the project's pipelines and their tables in this folder.", metavar="DIR|URL")
]
From = Annotated[int, typer.Option("--from", min=1, help="With --tables: the first event to check.", metavar="SEQ")]


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    epilog = examples("headrace audit && echo complete", "headrace audit --tables home/tables")
    app.command("audit", rich_help_panel=INSPECT, epilog=epilog)(audit)


def audit(
    api_url: ApiUrl = None,
    stream: Stream = None,
    tables: Tables = None,
    first: From = 1,
    project: Project = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Prove that no event is missing: for each trigger, the raw events read must equal those answered plus those pending.

    Exits with 0 only if all totals balance, no lane has a gap, no upstream was advanced beyond the receipts, and no answer is overdue by
    more than a minute. Otherwise it names the first problem and exits with 1. What an operator skipped with headrace upstreams seek is
    listed, not a problem.

    With --tables, in the project's folder, it audits the pipelines instead. Each run that succeeded must be in its table exactly once. Each
    event must be in one run of each pipeline that selects it, in a dead letter, or pending: waiting, held or in an open run.
    """
    if stream is not None and tables is not None:
        raise UsageError("--stream and --tables exclude each other.", hint="headrace audit --tables DIR audits the project's pipelines.")
    settings = read_settings(api_url=api_url, project=project, home=home, tables=tables)
    if tables is not None:
        _audit_tables(settings, first, json=json)
    else:
        _audit_streams(settings, stream, json=json)


def _audit_streams(settings: Settings, stream: str | None, *, json: bool) -> None:
    with admin_client(settings) as client:
        result = client.read(calls.GET_AUDIT, {"stream": stream})
    if stream is not None and not result.streams:
        raise UsageError(f"There are no receipts of a stream '{stream}'.", hint="headrace audit, without --stream, names the streams.")
    if not json:
        _print_streams(result)
    clean = "Clean: every raw event is accounted for." if result.streams else None
    _finish(result, None if result.clean else first_problem(result), clean, json=json)


def _audit_tables(settings: Settings, first: int, *, json: bool) -> None:
    from headrace.wiring.project import read_project  # here, since it imports user code

    result = audit_tables(settings, read_project(settings), first)
    if not json:
        _print_tables(result)
    clean = "Clean: each run is in its table once, and each event is in a run, in a dead letter or pending."
    _finish(result, None if result.clean else result.problems[0].what, clean, json=json)


def _finish(result: WireModel, failure: str | None, clean: str | None, *, json: bool) -> None:
    """Print the result as JSON or the outcome as text, and exit with 1 if the audit failed."""
    if json:
        print_json(result)
    if failure is not None:
        err.print(f"[bold red]not clean:[/] {escape(failure)}")
        raise typer.Exit(1)
    if not json and clean is not None:
        out.print(clean)


def first_problem(result: Audit) -> str:
    """Return the first problem in one line."""
    for stream in result.streams:
        for gap in stream.problems:
            return f"stream {stream.stream}, lane {gap.lane}: {gap.problem}."
        for trigger in stream.triggers:
            if not trigger.balanced:
                return f"stream {stream.stream}, trigger {trigger.trigger}: {_difference(trigger)}."
    return "the API server does not say why."


def _difference(totals: TriggerAudit) -> str:
    expected = totals.spilled - totals.settled
    if expected != totals.pending:
        return f"its backlog should have {count(expected, 'raw event')} and has {totals.pending:,}"
    answered = sum(getattr(totals, name) for name in ANSWERS)
    return f"{totals.read:,} raw events were read for it, and {answered:,} are accounted for"


def _print_streams(result: Audit) -> None:
    if not result.streams:
        out.print("There are no receipts. A triggerer stores them before it advances an upstream.")
    for stream in result.streams:
        out.print(f"[bold]{escape(stream.stream)}[/]: {stream.read:,} read from {count(stream.lanes, 'lane')}")
        _print_stream(stream)


def _print_stream(stream: StreamAudit) -> None:
    columns: Columns = ["trigger", *_counters(OF_TRIGGER), "balanced"]
    rows = [(one.trigger, *(getattr(one, name) for name in OF_TRIGGER), "yes" if one.balanced else "NO") for one in stream.triggers]
    print_table(columns, rows, empty="No trigger had to answer a raw event of it.")
    if stream.problems:
        print_table(
            [long("lane"), number("recorded"), number("committed"), problem("problem")],
            [(one.lane, one.recorded, one.committed, one.problem) for one in stream.problems],
        )
    if stream.seeks:
        print_table(
            [long("lane"), "seek", "first", "last", long("by"), "time"],
            [(one.lane, one.what, str(one.first), str(one.last), one.who, rfc3339(one.at)) for one in stream.seeks],
        )


def audit_tables(settings: Settings, project: DeclaredProject, first: int) -> TablesAudit:
    """Compare the project's tables, its runs and its events from `first` on.

    Data that can change is read first: an open run that ends is then among the runs, and a run's rows are in its table before it ends.

    Raises:
        ApiRefused: The project has no scope.
        PipelineError: The folder of tables does not exist.
    """
    from headrace.pipeline.table_audit import audit_pipeline, compare_tables, expected_events, pending_of
    from headrace.pipeline.tables.contents import read_tables

    with (
        admin_client(settings) as client,
        table_folder(settings, "headrace audit") as tables,
        ProgressBars("files", transient=True) as progress,
    ):
        ledger, state, opened = _scope(client, project.name)
        first = max(first, ledger.first)
        dead_letters = list(read_dead_letters(client, project.name))
        runs = list(read_runs(client, project.name))
        firings = read_firings(client, ledger, first)
        compared = compare_tables(ledger, runs, opened, read_tables(tables, progress.update))
    pending = pending_of(ledger, state, opened)
    problems = list(compared.problems)
    pipelines = []
    for name, pipeline in project.pipelines.items():
        taken = filter(pipeline.takes, firings.names.values())
        expected = expected_events(firings.names, firings.seqs, firings.fired, taken)
        audited, differences = audit_pipeline(name, expected, ledger, runs, dead_letters, pending)
        pipelines.append(audited)
        problems += differences
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


def _print_tables(result: TablesAudit) -> None:
    out.print(f"[bold]{escape(result.scope)}[/]: {count(result.runs, 'run')}, events {result.first:,} to {result.last:,} checked")
    if result.unverified:
        out.print(f"  {count(result.unverified, 'run')} older than the history of the table: not compared with it.")
    if not result.exact:
        out.print("  Waiting and held events are only counted: the scope moved during the audit, or has another version.")
    rows = [(one.pipeline, *(getattr(one, name) for name in OF_PIPELINE)) for one in result.pipelines]
    print_table(["pipeline", *_counters(OF_PIPELINE)], rows, empty="The project has no pipelines.")
    tables = [(one.table, one.entries, one.rows, *(getattr(one, name) for name in OF_TABLE)) for one in result.tables]
    print_table(["table", number("files or commits"), number("rows"), *_counters(OF_TABLE)], tables, empty="There are no tables.")
    if result.problems:
        print_table(["problem", problem("details")], [(one.kind, one.what) for one in result.problems[:MAX_PROBLEMS]])
    if len(result.problems) > MAX_PROBLEMS:
        out.print(f"{len(result.problems) - MAX_PROBLEMS:,} more problems: --json prints all.")


def _counters(names: tuple[str, ...]) -> list[Column]:
    return [number(name.replace("_", "-")) for name in names]


def _scope(client: AdminClient, scope: str) -> tuple[ScopeLedger, dict[str, bytes] | None, list[OpenRun]]:
    """Return the ledger of a scope, its state (or None if it moved at each attempt), and its open runs."""
    for _ in range(MAX_STATE_READS):
        ledger = read_ledger(client, scope)
        opened = read_open_runs(client, ledger)
        state = read_state(client, ledger)
        after = read_ledger(client, scope)
        if (after.incarnation, after.batch) == (ledger.incarnation, ledger.batch):
            return ledger, state, opened
    return ledger, None, opened
