"""`headrace tables adopt`: let tables go on with another event log."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.console import out
from headrace.cli.options import Home, Tables
from headrace.settings import read_settings

EXAMPLE = "Example: [bold]headrace tables adopt legs --scope flights --log 5f0c…[/bold]"


group = typer.Typer(
    help="Decide what tables of pipelines go on with.",
    epilog=EXAMPLE,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="tables", rich_help_panel="Inspect and repair")


@group.callback()
def tables() -> None:
    """Decide what tables of pipelines go on with."""


@group.command("adopt", epilog=EXAMPLE)
def adopt(
    names: Annotated[list[str], typer.Argument(help="The tables.", metavar="TABLE...", show_default=False)],
    scope: Annotated[str, typer.Option("--scope", help="The scope that writes them: the project's name.", show_default=False)],
    log: Annotated[str, typer.Option("--log", help="The id of the event log, as the refused driver names it.", show_default=False)],
    tables: Tables = None,
    home: Home = None,
) -> None:
    """Adopt tables for another event log, after the database was replaced on purpose. No rows are changed.

    The scope must then begin where the tables end: headrace scopes reset SCOPE --from SEQ. The log that a table had is refused from now on.
    """
    from headrace.pipeline.runs.identity import Writer
    from headrace.pipeline.tables.writers import TableWriters

    writers = TableWriters(read_settings(home=home, tables=tables).table_folder)
    for name in names:
        before = writers.adopt(name, Writer(scope, log))
        was = f", and no longer with {before.log}" if before is not None and before.log != log else ""
        out.print(f"The table {name} goes on with the event log {log}{was}.", markup=False)
