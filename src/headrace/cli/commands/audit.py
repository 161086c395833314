"""`headrace audit`: is anything missing? The exit code tells."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.commands.table_audit import audit_tables, show_tables
from headrace.cli.console import err, out
from headrace.cli.credentials import for_looking
from headrace.cli.options import ApiUrl, AsJson, Home, Project
from headrace.cli.rendering import show, show_json
from headrace.client.admin.client import AdminClient
from headrace.errors import UsageError
from headrace.settings import Settings, read_settings
from headrace.wire.custody.receipts import Audit, StreamAudit, TriggerAudit

Tables = Annotated[
    Path | None,
    typer.Option("--tables", help="Audit the project's pipelines, and their tables in this folder.", show_default=False, metavar="DIR"),
]
Begin = Annotated[int, typer.Option("--from", min=1, help="With --tables: the first event to check.", metavar="SEQ")]

COUNTS = ("read", "fired", "filtered", "rejected", "dead_lettered", "failed", "pending", "spilled", "settled")


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    examples = "Example: [bold]headrace audit && echo nothing is missing[/bold], or [bold]headrace audit --tables home/tables[/bold]"
    app.command("audit", rich_help_panel="Inspect and repair", epilog=examples)(audit)


def audit(
    api_url: ApiUrl = None,
    stream: Annotated[str | None, typer.Option("--stream", help="Only this stream.", show_default=False)] = None,
    tables: Tables = None,
    begin: Begin = 1,
    project: Project = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Prove that nothing is missing: for each trigger, what was read must be what was answered and what is pending.

    Exits with 0 only if all totals balance, no lane has a gap, no upstream was advanced past them, and nothing that was read is owed an
    answer for more than a minute; names the first of these otherwise.

    With --tables, in the project's folder: prove it of the pipelines instead. Each run that succeeded must be in its table exactly once.
    Each event must be in one run of each pipeline that takes it, in a dead letter, or on its way: waiting, held or in an open run.
    """
    if stream is not None and tables is not None:
        raise UsageError("--stream and --tables do not go together.", hint="headrace audit --tables DIR audits the project's pipelines.")
    if tables is not None:
        _audit_tables(read_settings(api_url=api_url, project=project, home=home), tables, begin, json=json)
        return
    settings = read_settings(api_url=api_url)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        books = Audit.model_validate(client.audit(stream))
    if stream is not None and not books.streams:
        raise UsageError(f"Nothing is recorded of a stream '{stream}'.", hint="headrace audit, without --stream, names those there are.")
    if json:
        show_json(books)
    else:
        _show(books)
    if not books.clean:
        err.print(f"[bold red]not clean:[/] {escape(first_gap(books))}")
        raise typer.Exit(1)
    if not json and books.streams:
        out.print("Clean: everything that was read is accounted for.")


def _audit_tables(settings: Settings, tables: Path, begin: int, *, json: bool) -> None:
    from headrace.wiring.project import read_project

    audited = audit_tables(settings, read_project(settings), tables, begin)
    if json:
        show_json(audited)
    else:
        show_tables(audited)
    if not audited.clean:
        err.print(f"[bold red]not clean:[/] {escape(audited.problems[0].what)}")
        raise typer.Exit(1)
    if not json:
        out.print("Clean: each run is in its table once, and each event is in a run, in a dead letter or pending.")


def first_gap(books: Audit) -> str:
    """Return the first thing that is wrong, in one line."""
    for stream in books.streams:
        for problem in stream.problems:
            return f"stream {stream.stream}, lane {problem.lane}: {problem.problem}."
        for trigger in stream.triggers:
            if not trigger.balanced:
                return f"stream {stream.stream}, trigger {trigger.trigger}: {_difference(trigger)}."
    return "the api does not say why."


def _difference(books: TriggerAudit) -> str:
    owed = books.spilled - books.settled
    if owed != books.pending:
        return f"{owed} raw events should wait in its backlog, and {books.pending} do"
    answered = sum(getattr(books, name) for name in ("fired", "filtered", "rejected", "dead_lettered", "failed", "pending"))
    return f"{books.read} raw events were read for it, and {answered} are accounted for"


def _show(books: Audit) -> None:
    if not books.streams:
        out.print("Nothing is recorded yet: a triggerer records what became of each raw event before it advances the upstream.")
    for stream in books.streams:
        out.print(
            f"[bold]{escape(stream.stream)}[/]: {stream.read:,} read from {stream.lanes:,} {'lane' if stream.lanes == 1 else 'lanes'}"
        )
        _show_stream(stream)


def _show_stream(stream: StreamAudit) -> None:
    columns = ["trigger", *(f"#{name.replace('_', '-')}" for name in COUNTS), "balanced"]
    rows = [(one.trigger, *(getattr(one, name) for name in COUNTS), "yes" if one.balanced else "NO") for one in stream.triggers]
    show(columns, rows, empty="No trigger had to answer anything of it.")
    if stream.problems:
        show(
            ["~lane", "#recorded", "#committed", "!problem"],
            [(one.lane, one.recorded, one.committed, one.problem) for one in stream.problems],
            empty="",
        )
