"""`headrace variables`: settings and secrets, for triggers and pipelines."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.commands.connections import About
from headrace.cli.console import out
from headrace.cli.credentials import for_changing, for_looking
from headrace.cli.options import ApiUrl, AsJson, Home
from headrace.cli.rendering import ago, show, show_json
from headrace.cli.secret_input import secret_text
from headrace.client.admin.secrets import SecretsClient
from headrace.settings import read_settings
from headrace.wire.secrets import SetVariable, ShownVariable

SET = """Examples:

[bold]headrace variables set api_token[/bold]   (asks, and shows nothing of what is typed)

[bold]headrace variables set certificate < certificate.pem[/bold]

[bold]headrace variables set region --plain --value eu-central[/bold]"""
Key = Annotated[str, typer.Argument(help="Its key: letters, digits, '.', '-' and '_'.", metavar="KEY", show_default=False)]
Value = Annotated[str | None, typer.Option("--value", help="The text; better typed or piped in where it is secret.", show_default=False)]
Plain = Annotated[bool, typer.Option("--plain", help="Not a secret: show it in lists and logs.")]

group = typer.Typer(no_args_is_help=True, help="Manage encrypted variables for running jobs.")


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(group, name="variables", rich_help_panel="Secrets", epilog="Example: [bold]headrace variables set region --plain[/bold]")


@group.command("list", epilog="Example: [bold]headrace variables list --json | jq -r .variables[].key[/bold]")
def list_variables(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the variables. Secret values are masked."""
    settings = read_settings(api_url=api_url)
    with SecretsClient(settings.url, token=for_looking(settings)) as client:
        found = client.variables()
    if json:
        show_json(found)
    else:
        _show(found.variables)


@group.command("show", epilog="Example: [bold]headrace variables show region[/bold]")
def show_variable(key: Key, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show one variable, masked where it is secret."""
    settings = read_settings(api_url=api_url)
    with SecretsClient(settings.url, token=for_looking(settings)) as client:
        found = client.variable(key)
    if json:
        show_json(found)
    else:
        _show([found])


@group.command("set", epilog=SET)
def set_variable(
    key: Key, value: Value = None, plain: Plain = False, description: About = None, api_url: ApiUrl = None, home: Home = None
) -> None:
    """Keep a variable; secret, unless it is said to be plain."""
    settings = read_settings(api_url=api_url, home=home)
    credential = for_changing(settings)
    given = SetVariable(value=secret_text(value, "Value"), secret=not plain, description=description)
    with SecretsClient(settings.url) as client:
        client.set_variable(key, given, key=credential)
    out.print(f"[bold green]✓[/] variable {escape(key)} is kept. Running jobs see it within a minute.")


@group.command("remove", epilog="Example: [bold]headrace variables remove region[/bold]")
def remove_variable(key: Key, api_url: ApiUrl = None, home: Home = None) -> None:
    """Delete a variable."""
    settings = read_settings(api_url=api_url, home=home)
    with SecretsClient(settings.url) as client:
        client.remove_variable(key, key=for_changing(settings))
    out.print(f"Variable {escape(key)} is deleted.")


def _show(variables: list[ShownVariable]) -> None:
    show(
        ["key", "~value", "secret", "updated", "~description", "!trouble"],
        [(one.key, one.value, "yes" if one.secret else "no", ago(one.updated), one.description, one.trouble or "") for one in variables],
        empty="There is no variable yet: make one with `headrace variables set KEY`.",
    )
