"""`headrace secrets` and `headrace token`: the keys that secrets are kept under, and tokens for people."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.console import err, out
from headrace.cli.credentials import deployment_key, for_changing
from headrace.cli.options import ApiUrl, AsJson, Home
from headrace.cli.rendering import ago, show, show_json, when
from headrace.client.admin.secrets import SecretsClient
from headrace.errors import UsageError
from headrace.settings import new_fernet_key, read_settings
from headrace.wire.secrets import MakeToken, PersonScope, RotateSecrets

ROTATE = """To change the key:

1. [bold]headrace secrets new-key[/bold] makes one; put it first: HEADRACE_FERNET_KEYS=new,old; start each api again.

2. [bold]headrace secrets rotate[/bold]

3. Take the old key out, and start each api again."""
_UNITS = {"m": 60, "h": 3600, "d": 24 * 3600}

secrets = typer.Typer(no_args_is_help=True, help="Change the key that secrets are kept under.")
token = typer.Typer(no_args_is_help=True, help="Create, list and revoke API tokens.")


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(secrets, name="secrets", rich_help_panel="Secrets", epilog="Example: [bold]headrace secrets rotate[/bold]")
    app.add_typer(token, name="token", rich_help_panel="Secrets", epilog="Example: [bold]headrace token create --scope read[/bold]")


@secrets.command("new-key", epilog="Example: [bold]HEADRACE_FERNET_KEYS=$(headrace secrets new-key),$OLD headrace api[/bold]")
def new_key() -> None:
    """Print a new key. It is nowhere else: keep it where only the apis find it."""
    out.print(new_fernet_key(), markup=False)


@secrets.command("rotate", epilog=f"{ROTATE} Example: [bold]headrace secrets rotate[/bold]")
def rotate(api_url: ApiUrl = None, home: Home = None) -> None:
    """Encrypt all secrets with the first key. You can stop it and run it again at any time."""
    settings = read_settings(api_url=api_url, home=home)
    key = for_changing(settings)
    rotated = current = 0
    unreadable: list[str] = []
    asked = RotateSecrets()
    with SecretsClient(settings.url) as client:
        while True:
            answer = client.rotate(asked, key=key)
            rotated, current = rotated + answer.rotated, current + answer.current
            unreadable += answer.unreadable
            if answer.after is None:
                break
            asked = RotateSecrets(after=answer.after)
    out.print(f"{rotated:,} encrypted with the first key, {current:,} already were, {len(unreadable):,} unreadable.")
    for what in unreadable:
        err.print(f"[red]No key opens {escape(what)}.[/]")
    if unreadable:
        err.print("Start the API with their key beside the others and rotate again, or set them again.")
        sys.exit(1)


@token.command("create", epilog="Example: [bold]HEADRACE_TOKEN=$(headrace token create --scope read --expires 7d) headrace status[/bold]")
def create(
    scope: Annotated[PersonScope, typer.Option("--scope", help="read: look. admin: also change, and set secrets.")] = "read",
    expires: Annotated[str, typer.Option("--expires", help="For how long: 90m, 12h, 30d; at most 366d.")] = "30d",
    name: Annotated[str, typer.Option("--name", help="Whose it is.")] = "someone",
    api_url: ApiUrl = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Print a token. It can be taken back: headrace token revoke."""
    settings = read_settings(api_url=api_url, home=home)
    asked = MakeToken(scope=scope, name=name, seconds=_seconds(expires))
    with SecretsClient(settings.url) as client:
        made = client.make_token(asked, key=deployment_key(settings))
    if json:
        show_json(made)
        return
    out.print(made.token, markup=False)
    err.print(f"Opens what '{scope}' may until {made.expires:%Y-%m-%d %H:%M} UTC. Take it back with: headrace token revoke {made.id}")


@token.command("list", epilog="Example: [bold]headrace token list[/bold]")
def list_tokens(api_url: ApiUrl = None, home: Home = None, json: AsJson = False) -> None:
    """List whom tokens were made for, those made last first; the tokens themselves are nowhere."""
    settings = read_settings(api_url=api_url, home=home)
    with SecretsClient(settings.url, token=deployment_key(settings)) as client:
        found = client.tokens()
    if json:
        show_json(found)
        return
    show(
        ["id", "name", "scope", "made", "expires", "!taken back"],
        [
            (one.id, one.name, one.scope, ago(one.made), when(one.expires), "" if one.revoked is None else ago(one.revoked))
            for one in found.tokens
        ],
        empty="No token was made, or all have expired.",
    )


@token.command("revoke", epilog="Example: [bold]headrace token revoke 1f0c5a93e2b7[/bold]")
def revoke(
    id: Annotated[str, typer.Argument(help="Its id, as `headrace token list` shows it.", show_default=False)],
    api_url: ApiUrl = None,
    home: Home = None,
) -> None:
    """Take a token back. Every api on the database refuses it within two seconds."""
    settings = read_settings(api_url=api_url, home=home)
    with SecretsClient(settings.url) as client:
        client.revoke_token(id, key=deployment_key(settings))
    out.print(f"The token {escape(id)} opens nothing any more.")


def _seconds(text: str) -> int:
    found = re.fullmatch(r"(\d{1,6})([mhd])", text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 60 <= seconds <= 366 * _UNITS["d"]:
        raise UsageError(f"Invalid lifetime '{text}'.", hint="Use 90m, 12h or 30d; at most 366d.")
    return seconds
