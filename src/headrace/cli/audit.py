"""`headrace audit`: is anything missing? The exit code tells."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.console import err, out
from headrace.cli.credentials import for_looking
from headrace.cli.options import ApiUrl, AsJson
from headrace.cli.tables import show, show_json
from headrace.client.people import PeopleClient
from headrace.errors import UsageError
from headrace.settings import read_settings
from headrace.wire.custody import Audit, StreamAudit, TriggerAudit

COUNTS = ("read", "fired", "filtered", "rejected", "dead_lettered", "failed", "pending", "spilled", "settled")


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    example = "Example: [bold]headrace audit && echo nothing is missing[/bold]"
    app.command("audit", rich_help_panel="Inspect and repair", epilog=example)(audit)


def audit(
    api_url: ApiUrl = None,
    stream: Annotated[str | None, typer.Option("--stream", help="Only this stream.", show_default=False)] = None,
    json: AsJson = False,
) -> None:
    """Prove that nothing is missing: for each trigger, what was read must be what was answered and what is pending.

    Exits with 0 only if all books balance, no lane has a gap, no upstream was advanced past them, and nothing that was read is owed an
    answer for more than a minute; names the first of these otherwise.
    """
    settings = read_settings(api_url=api_url)
    with PeopleClient(settings.url, token=for_looking(settings)) as client:
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
