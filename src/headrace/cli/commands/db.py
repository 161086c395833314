"""`headrace db`: show, upgrade and downgrade the schema of the database."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.console import err, out
from headrace.cli.groups import command_group, examples
from headrace.cli.options import Database, Home
from headrace.errors import UsageError
from headrace.settings import read_settings

# Functions import the store, so that other commands do not load SQLAlchemy.
Revision = Annotated[str, typer.Argument(help="The older schema, from `headrace db status`.", metavar="REVISION", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = command_group("Show, upgrade or downgrade the schema of the database.", "headrace db status")
    group.command("status", epilog=examples("headrace db status --database-url postgresql://…"))(status)
    group.command("upgrade", epilog=examples("headrace db upgrade"))(upgrade)
    group.command("downgrade", epilog=examples("headrace db downgrade 0001 --yes"))(downgrade)
    app.add_typer(group, name="db", rich_help_panel="Processes")


def status(home: Home = None, database_url: Database = None) -> None:
    """Show the schema of the database and that of this version. Exits with 1 if they differ."""
    from headrace.store.db import migrations

    state = migrations.status(_url(home, database_url))
    out.print(f"Database [bold]{escape(state.where)}[/]: schema [bold]{state.revision or 'none yet'}[/], this version's is {state.newest}.")
    state.check()
    names = [step.revision for step in state.steps]
    here = -1 if state.revision is None else names.index(state.revision)
    for number, step in enumerate(state.steps):
        mark = "[green]✓[/]" if number <= here else "[yellow]·[/]"
        out.print(f"  {mark} {step.revision}  {escape(step.adds)}")
    if state.revision != state.newest:
        err.print("[bold]hint:[/] Back up the database, then run: headrace db upgrade")
        raise typer.Exit(1)


def upgrade(home: Home = None, database_url: Database = None) -> None:
    """Upgrade the database to the schema of this version, without loss. Back up the database first."""
    from headrace.store.db import migrations

    before = migrations.upgrade(_url(home, database_url))
    if before.revision == before.newest:
        out.print(f"Database [bold]{escape(before.where)}[/] has this version's schema already: {before.newest}.")
    else:
        out.print(f"Database [bold]{escape(before.where)}[/]: {before.revision or 'empty'} → [bold]{before.newest}[/].")


def downgrade(
    revision: Revision,
    home: Home = None,
    database_url: Database = None,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm the loss of data.")] = False,
) -> None:
    """Downgrade the database for an older version of Headrace. Without --yes it only prints what would be lost.

    Stop all API servers and back up the database first.
    """
    from headrace.store.db import migrations

    url = _url(home, database_url)
    before = migrations.status(url)
    for step in migrations.lost_by(before, revision):
        out.print(f"  {step.revision} is taken back, and with it is lost: {escape(step.loses)}.")
    if not yes:
        raise UsageError(
            f"Going back from {before.revision} to {revision} cannot be undone.",
            hint="Stop every api, back the database up, then say --yes.",
        )
    migrations.downgrade(url, revision)
    out.print(f"Database [bold]{escape(before.where)}[/]: {before.revision} → [bold]{revision}[/].")


def _url(home: Home, database_url: Database) -> str:
    return read_settings(home=home, database_url=database_url).database
