"""`headrace tokens`: API tokens for users and scripts."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.console import err, out
from headrace.cli.credentials import deployment_key
from headrace.cli.groups import SECRETS, command_group, examples
from headrace.cli.options import ApiUrl, AsJson, Home
from headrace.cli.rendering import Columns, ago, ago_or_ahead, print_json, problem, render
from headrace.client.admin.secrets import SecretsClient
from headrace.errors import UsageError
from headrace.settings import read_settings
from headrace.wire.secrets import CreateToken, PersonScope

UNIT_SECONDS = {"m": 60, "h": 3600, "d": 24 * 3600}
MIN_LIFETIME_SECONDS = 60
MAX_LIFETIME_SECONDS = 366 * UNIT_SECONDS["d"]

Scope = Annotated[
    PersonScope, typer.Option("--scope", help="'read' allows to read, 'admin' also to change and to set secrets.", metavar="read|admin")
]
Expires = Annotated[str, typer.Option("--expires", help="Lifetime: 90m, 12h, 30d; at most 366d.", metavar="LIFETIME")]
TokenName = Annotated[str, typer.Option("--name", help="Name of the user or script that uses it.", metavar="NAME")]
Id = Annotated[str, typer.Argument(help="Its id, from `headrace tokens list`.", metavar="ID", show_default=False)]

group = command_group("Create, list and revoke API tokens.", "headrace tokens create --scope read")


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="tokens", rich_help_panel=SECRETS)


@group.command(
    "create",
    epilog=examples("headrace tokens create --name grafana", "HEADRACE_TOKEN=$(headrace tokens create --expires 7d) headrace status"),
)
def create(
    scope: Scope = "read",
    expires: Expires = "30d",
    name: TokenName = "unnamed",
    api_url: ApiUrl = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Create a token and print it. To revoke it: headrace tokens revoke ID."""
    settings = read_settings(api_url=api_url, home=home)
    request = CreateToken(scope=scope, name=name, seconds=_seconds(expires))
    with SecretsClient(settings.url) as client:
        token = client.make_token(request, key=deployment_key(settings))
    if json:
        print_json(token)
        return
    out.print(token.token, markup=False)
    err.print(f"Scope '{scope}', until {token.expires:%Y-%m-%d %H:%M} UTC. To revoke it: headrace tokens revoke {token.id}")


@group.command("list", epilog=examples("headrace tokens list"))
def list_tokens(api_url: ApiUrl = None, home: Home = None, json: AsJson = False) -> None:
    """List the users of tokens, the newest first. The tokens themselves are not stored."""
    settings = read_settings(api_url=api_url, home=home)
    with SecretsClient(settings.url, token=deployment_key(settings)) as client:
        page = client.tokens()
    rows = [
        (one.id, one.name, one.scope, ago(one.created), ago_or_ahead(one.expires), "" if one.revoked is None else ago(one.revoked))
        for one in page.tokens
    ]
    columns: Columns = ["id", "name", "scope", "created", "expires", problem("revoked")]
    render(page, columns, rows, json=json, empty="There are no tokens, or all have expired.")


@group.command("revoke", epilog=examples("headrace tokens revoke 1f0c5a93e2b7"))
def revoke(id: Id, api_url: ApiUrl = None, home: Home = None) -> None:
    """Revoke a token. All API servers of the database reject it within two seconds."""
    settings = read_settings(api_url=api_url, home=home)
    with SecretsClient(settings.url) as client:
        client.revoke_token(id, key=deployment_key(settings))
    out.print(f"Token {escape(id)} is revoked.")


def _seconds(text: str) -> int:
    match = re.fullmatch(r"(\d{1,6})([mhd])", text)
    seconds = int(match[1]) * UNIT_SECONDS[match[2]] if match else 0
    if not MIN_LIFETIME_SECONDS <= seconds <= MAX_LIFETIME_SECONDS:
        raise UsageError(f"Invalid lifetime '{text}'.", hint="Use 90m, 12h or 30d; at most 366d.")
    return seconds
