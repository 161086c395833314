"""`headrace connections`: how to reach other systems, for triggers and pipelines."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError
from rich.markup import escape

from headrace.cli.console import out
from headrace.cli.credentials import for_changing, for_looking
from headrace.cli.options import ApiUrl, AsJson, Home
from headrace.cli.rendering import ago, show, show_json
from headrace.cli.secret_input import secret_text
from headrace.client.admin.secrets import SecretsClient
from headrace.core.connection import parse_connection
from headrace.errors import SecretError
from headrace.settings import read_settings
from headrace.wire.secrets import SetConnection

SET = """Examples:

[bold]headrace connections set warehouse[/bold]   (asks, and shows nothing of what is typed)

[bold]pass show warehouse | headrace connections set warehouse --description 'read only'[/bold]

[bold]headrace connections set files --value '{"kind": "http", "host": "files.example", "extra": {"token": "…"}}'[/bold]"""
Id = Annotated[str, typer.Argument(help="Its id: letters, digits, '.', '-' and '_'.", metavar="ID", show_default=False)]
Value = Annotated[
    str | None,
    typer.Option("--value", help="A URI or JSON; better typed or piped in, since flags stay in the shell's history.", show_default=False),
]
About = Annotated[str | None, typer.Option("--description", help="What it is for.", show_default=False)]

group = typer.Typer(no_args_is_help=True, help="Manage encrypted connections for running jobs.")


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(group, name="connections", rich_help_panel="Secrets", epilog="Example: [bold]headrace connections set warehouse[/bold]")


@group.command("list", epilog="Example: [bold]headrace connections list --json | jq -r .connections[].id[/bold]")
def list_connections(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the connections, with what is secret masked."""
    settings = read_settings(api_url=api_url)
    with SecretsClient(settings.url, token=for_looking(settings)) as client:
        found = client.connections()
    if json:
        show_json(found)
        return
    show(
        ["id", "kind", "~host", "port", "login", "password", "database", "~extra", "updated", "~description", "!trouble"],
        [
            (
                one.id,
                one.kind,
                one.host,
                None if one.port is None else str(one.port),
                one.login,
                one.password,
                one.database,
                ", ".join(one.extra),
                ago(one.updated),
                one.description,
                one.trouble or "",
            )
            for one in found.connections
        ],
        empty="There is no connection yet: make one with `headrace connections set ID`.",
    )


@group.command("show", epilog="Example: [bold]headrace connections show warehouse[/bold]")
def show_connection(id: Id, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show one connection, with what is secret masked."""
    settings = read_settings(api_url=api_url)
    with SecretsClient(settings.url, token=for_looking(settings)) as client:
        found = client.connection(id)
    if json:
        show_json(found)
        return
    facts = found.model_dump(exclude={"extra", "updated"}) | {"extra": ", ".join(found.extra), "updated": ago(found.updated)}
    show(["what", "~value"], [(name, None if value is None else str(value)) for name, value in facts.items()], empty="")


@group.command("set", epilog=SET)
def set_connection(id: Id, value: Value = None, description: About = None, api_url: ApiUrl = None, home: Home = None) -> None:
    """Keep a connection: a URI such as postgresql://ada:secret@db.example/flights, or JSON."""
    settings = read_settings(api_url=api_url, home=home)
    key = for_changing(settings)
    found = parse_connection(id, secret_text(value, "URI or JSON"))
    try:
        given = SetConnection(**found.fields(), description=description)
    except ValidationError as error:
        wrong = ", ".join(str(one["loc"][0]) for one in error.errors(include_input=False))
        raise SecretError(f"Connection '{id}' cannot be kept: its {wrong} cannot be used.") from None  # the cause shows what was given
    with SecretsClient(settings.url) as client:
        client.set_connection(id, given, key=key)
    out.print(f"[bold green]✓[/] connection {escape(id)} is kept. Running jobs see it within a minute.")


@group.command("remove", epilog="Example: [bold]headrace connections remove warehouse[/bold]")
def remove_connection(id: Id, api_url: ApiUrl = None, home: Home = None) -> None:
    """Delete a connection."""
    settings = read_settings(api_url=api_url, home=home)
    with SecretsClient(settings.url) as client:
        client.remove_connection(id, key=for_changing(settings))
    out.print(f"Connection {escape(id)} is deleted.")
