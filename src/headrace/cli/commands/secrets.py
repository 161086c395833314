"""`headrace connections`, `headrace variables` and `headrace secrets`: encrypted access data and settings, and their key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Generic, NamedTuple, TypeVar

import typer
from pydantic import ValidationError
from rich.markup import escape

from headrace.cli.console import err, out
from headrace.cli.credentials import deployment_key, for_changing, for_looking
from headrace.cli.groups import SECRETS, command_group, examples
from headrace.cli.options import ApiUrl, AsJson, Home
from headrace.cli.rendering import Cell, Column, Columns, ago, long, problem, render, render_facts
from headrace.cli.secret_input import secret_text
from headrace.client.admin.secrets import SecretsClient
from headrace.core.connection import parse_connection
from headrace.errors import SecretError
from headrace.settings import new_fernet_key, read_settings
from headrace.wire.base import WireModel
from headrace.wire.secrets import ConnectionSummary, RotateSecrets, SetConnection, SetVariable, VariableSummary

S = TypeVar("S", ConnectionSummary, VariableSummary)

SET_CONNECTION: Final = examples(
    ("headrace connections set warehouse", "prompts for the value"),
    "pass show warehouse | headrace connections set warehouse --description 'read only'",
    """headrace connections set files --value '{"kind": "http", "host": "files.example", "extra": {"token": "…"}}'""",
)
SET_VARIABLE: Final = examples(
    ("headrace variables set api_token", "prompts for the value"),
    "headrace variables set certificate < certificate.pem",
    "headrace variables set region --plain --value eu-central",
)
ROTATE: Final = f"""To change the key:

1. Create a key with [bold]headrace secrets new-key[/bold], set HEADRACE_FERNET_KEYS=new,old and restart each API server.

2. Run [bold]headrace secrets rotate[/bold].

3. Remove the old key and restart each API server.

{examples("headrace secrets rotate")}"""

Name = Annotated[str, typer.Argument(help="Its name: letters, digits, '.', '-' and '_'.", metavar="NAME", show_default=False)]
Value = Annotated[
    str | None,
    typer.Option("--value", help="The value. Prefer the prompt or a pipe for secrets: a shell keeps flags.", show_default=False),
]
Description = Annotated[str | None, typer.Option("--description", help="What it is used for.", show_default=False)]
Plain = Annotated[bool, typer.Option("--plain", help="Not a secret: lists and logs show it.")]

connections = command_group("Manage encrypted connections for running jobs.", "headrace connections set warehouse")
variables = command_group("Manage encrypted variables for running jobs.", "headrace variables set region --plain")
keys = command_group("Create encryption keys, and encrypt secrets with a new key.", "headrace secrets rotate")


class Resource(NamedTuple, Generic[S]):
    """A kind of secret: its calls, and its columns in a list."""

    name: str
    fetch_all: Callable[[SecretsClient], tuple[WireModel, Sequence[S]]]
    fetch: Callable[[SecretsClient, str], S]
    remove: Callable[[SecretsClient, str, str], None]
    columns: Columns
    row: Callable[[S], Sequence[Cell]]


def add_to(app: typer.Typer) -> None:
    """Add the groups to `app`."""
    app.add_typer(connections, name="connections", rich_help_panel=SECRETS)
    app.add_typer(variables, name="variables", rich_help_panel=SECRETS)
    app.add_typer(keys, name="secrets", rich_help_panel=SECRETS)


def _add_commands(group: typer.Typer, resource: Resource[S]) -> None:
    """Add the commands that connections and variables share."""
    name, command = resource.name, f"headrace {resource.name}s"

    @group.command("list", help=f"List the {name}s. Secret values are masked.", epilog=examples(f"{command} list --json"))
    def list_all(api_url: ApiUrl = None, json: AsJson = False) -> None:
        settings = read_settings(api_url=api_url)
        with SecretsClient(settings.url, token=for_looking(settings)) as client:
            response, items = resource.fetch_all(client)
        empty = f"There are no {name}s. Create one with `{command} set NAME`."
        render(response, resource.columns, map(resource.row, items), json=json, empty=empty)

    @group.command("show", help=f"Show one {name}. Secret values are masked.", epilog=examples(f"{command} show warehouse"))
    def show(id: Name, api_url: ApiUrl = None, json: AsJson = False) -> None:
        settings = read_settings(api_url=api_url)
        with SecretsClient(settings.url, token=for_looking(settings)) as client:
            item = resource.fetch(client, id)
        names = [column.name if isinstance(column, Column) else column for column in resource.columns]
        render_facts(item, dict(zip(names, resource.row(item), strict=True)), json=json)

    @group.command("remove", help=f"Delete a {name}.", epilog=examples(f"{command} remove warehouse"))
    def remove(id: Name, api_url: ApiUrl = None, home: Home = None) -> None:
        settings = read_settings(api_url=api_url, home=home)
        with SecretsClient(settings.url) as client:
            resource.remove(client, id, for_changing(settings))
        out.print(f"{name.capitalize()} {escape(id)} is deleted.")


def _connection_row(one: ConnectionSummary) -> Sequence[Cell]:
    port = None if one.port is None else str(one.port)
    texts = (one.id, one.kind, one.host, port, one.login, one.password, one.database, ", ".join(one.extra))
    return (*texts, ago(one.updated), one.description, one.error or "")


def _all_connections(client: SecretsClient) -> tuple[WireModel, Sequence[ConnectionSummary]]:
    response = client.connections()
    return response, response.connections


def _all_variables(client: SecretsClient) -> tuple[WireModel, Sequence[VariableSummary]]:
    response = client.variables()
    return response, response.variables


_add_commands(
    connections,
    Resource(
        "connection",
        fetch_all=_all_connections,
        fetch=SecretsClient.connection,
        remove=lambda client, name, key: client.remove_connection(name, key=key),
        columns=[
            "id",
            "kind",
            long("host"),
            "port",
            "login",
            "password",
            "database",
            long("extra"),
            "updated",
            long("description"),
            problem("problem"),
        ],
        row=_connection_row,
    ),
)
_add_commands(
    variables,
    Resource(
        "variable",
        fetch_all=_all_variables,
        fetch=SecretsClient.variable,
        remove=lambda client, name, key: client.remove_variable(name, key=key),
        columns=["key", long("value"), "secret", "updated", long("description"), problem("problem")],
        row=lambda one: (one.key, one.value, "yes" if one.secret else "no", ago(one.updated), one.description, one.error or ""),
    ),
)


@connections.command("set", epilog=SET_CONNECTION)
def set_connection(id: Name, value: Value = None, description: Description = None, api_url: ApiUrl = None, home: Home = None) -> None:
    """Store a connection: a URI such as postgresql://ada:secret@db.example/flights, or JSON."""
    settings = read_settings(api_url=api_url, home=home)
    key = for_changing(settings)
    parsed = parse_connection(id, secret_text(value, "URI or JSON"))
    try:
        request = SetConnection(**parsed.fields(), description=description)
    except ValidationError as error:
        invalid = ", ".join(str(one["loc"][0]) for one in error.errors(include_input=False))
        raise SecretError(f"Invalid connection '{id}': its {invalid} cannot be used.") from None  # the cause contains the value
    with SecretsClient(settings.url) as client:
        client.set_connection(id, request, key=key)
    out.print(f"[bold green]✓[/] connection {escape(id)} is stored. Running jobs read it within a minute.")


@connections.command("test", epilog=examples("headrace connections test kafka"))
def probe(id: Name, api_url: ApiUrl = None, home: Home = None) -> None:
    """Connect once from this machine, as a running job would, and describe the system. It changes nothing there."""
    from headrace.wiring.connection_probe import probe_stored_connection  # here, since it imports client libraries

    settings = read_settings(api_url=api_url, home=home)
    described = probe_stored_connection(settings.model_copy(update={"key": deployment_key(settings)}), id)
    out.print(f"[bold green]✓[/] connection {escape(id)}: {escape(described)}")


@variables.command("set", epilog=SET_VARIABLE)
def set_variable(
    key: Name, value: Value = None, plain: Plain = False, description: Description = None, api_url: ApiUrl = None, home: Home = None
) -> None:
    """Store a variable. It is secret without --plain."""
    settings = read_settings(api_url=api_url, home=home)
    credential = for_changing(settings)
    request = SetVariable(value=secret_text(value, "Value"), secret=not plain, description=description)
    with SecretsClient(settings.url) as client:
        client.set_variable(key, request, key=credential)
    out.print(f"[bold green]✓[/] variable {escape(key)} is stored. Running jobs read it within a minute.")


@keys.command("new-key", epilog=examples("headrace secrets new-key > new-key"))
def new_key() -> None:
    """Print a new encryption key. Nothing stores it: keep it where only API servers can read it."""
    out.print(new_fernet_key(), markup=False)


@keys.command("rotate", epilog=ROTATE)
def rotate(api_url: ApiUrl = None, home: Home = None) -> None:
    """Encrypt all secrets with the first key. It can be interrupted and repeated."""
    settings = read_settings(api_url=api_url, home=home)
    key = for_changing(settings)
    rotated = current = 0
    unreadable: list[str] = []
    request = RotateSecrets()
    with SecretsClient(settings.url) as client:
        while True:
            batch = client.rotate(request, key=key)
            rotated, current = rotated + batch.rotated, current + batch.current
            unreadable += batch.unreadable
            if batch.after is None:
                break
            request = RotateSecrets(after=batch.after)
    out.print(f"{rotated:,} encrypted with the first key, {current:,} already were, {len(unreadable):,} unreadable.")
    for name in unreadable:
        err.print(f"[red]No key decrypts {escape(name)}.[/]")
    if unreadable:
        err.print("Start the API server with their key beside the others and rotate again, or set them again.")
        raise typer.Exit(1)
