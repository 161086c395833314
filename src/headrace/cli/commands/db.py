"""`headrace db`: which schema the database has, and moving it up or down."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.console import err, out
from headrace.cli.options import Database, Home
from headrace.errors import UsageError
from headrace.settings import read_settings

# The store is imported by the command that needs it: no other process of the command line loads SQLAlchemy.
Revision = Annotated[str, typer.Argument(help="The schema to go back to, as `headrace db status` names it.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help="Look at the database's schema, and move it up or down.", no_args_is_help=True)
    group.command("status", epilog="Example: [bold]headrace db status --database-url postgresql://…[/bold]")(status)
    group.command("upgrade", epilog="Back the database up first. Example: [bold]headrace db upgrade[/bold]")(upgrade)
    group.command("downgrade", epilog="Stop every api first. Example: [bold]headrace db downgrade 0001[/bold]")(downgrade)
    app.add_typer(group, name="db", rich_help_panel="Processes", epilog="Example: [bold]headrace db status[/bold]")


def status(home: Home = None, database_url: Database = None) -> None:
    """Show which schema the database has and which this version wants. Exits with 1 unless they are the same."""
    from headrace.store.db import migrations

    found = migrations.status(_url(home, database_url))
    out.print(f"Database [bold]{escape(found.where)}[/]: schema [bold]{found.revision or 'none yet'}[/], this version's is {found.newest}.")
    found.check()
    names = [step.revision for step in found.steps]
    here = -1 if found.revision is None else names.index(found.revision)
    for number, step in enumerate(found.steps):
        mark = "[green]✓[/]" if number <= here else "[yellow]·[/]"
        out.print(f"  {mark} {step.revision}  {escape(step.adds)}")
    if found.revision != found.newest:
        err.print("[bold]hint:[/] Back it up, then run: headrace db upgrade")
        raise typer.Exit(1)


def upgrade(home: Home = None, database_url: Database = None) -> None:
    """Bring the database to this version's schema. Nothing is lost by it; an empty database gets its tables."""
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
    yes: Annotated[bool, typer.Option("--yes", help="Do it, and lose what it loses.")] = False,
) -> None:
    """Take the database back to an older schema, for an older Headrace. Says what is lost, and does nothing without --yes."""
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
