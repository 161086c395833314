"""`headrace scopes list|reset|remove`: who reads the log, how far they are, and whom it keeps old events for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.console import out
from headrace.cli.credentials import for_changing, for_looking
from headrace.cli.options import ApiUrl, AsJson, Home, first_event, is_alone
from headrace.cli.rendering import ago, lasts, show, show_json
from headrace.client.admin.client import AdminClient
from headrace.settings import read_settings
from headrace.wire.pipelines.scopes import ResetScope, ScopeList, ScopeReset, ScopeStatus

NOBODY = "No scope has read the log yet: start one with `headrace pipeline`."

Name = Annotated[str, typer.Argument(help="Its name, as `headrace scopes list` shows it.", metavar="NAME", show_default=False)]
From = Annotated[str, typer.Option("--from", help="The first event to read: its seq, or 'now'.", metavar="SEQ|now", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

group = typer.Typer(
    help="List, reset or remove scopes: the consumers of the log. Without a command: list.",
    epilog="Example: [bold]headrace scopes remove old-project[/bold]",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="scopes", rich_help_panel="Inspect and repair")


@group.callback(invoke_without_command=True)
def scopes(context: typer.Context, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List, reset or remove scopes: the consumers of the log. Without a command: list."""
    if is_alone(context):
        list_scopes(api_url, json)


@group.command("list", epilog="Example: [bold]headrace scopes list --json | jq .scopes[].needs[/bold]")
def list_scopes(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the scopes. The scope that needs the oldest event holds the log back: later events are not pruned."""
    settings = read_settings(api_url=api_url)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        found = ScopeList.model_validate(client.scopes())
    if json:
        show_json(found)
        return
    show(
        ["scope", "kind", "#cursor", "#lag", "#open runs", "updated", "oldest event that it needs came"],
        [(s.scope, s.kind, s.cursor, s.lag, s.open_runs, ago(s.updated), None if s.needs is None else ago(s.needs)) for s in found.scopes],
        empty=NOBODY,
    )


@group.command("remove", epilog="Example: [bold]headrace scopes remove old-project[/bold]")
def remove_scope(name: Name, api_url: ApiUrl = None, home: Home = None) -> None:
    """Remove a scope whose pipeline has stopped for good. The log retains no events for it any more."""
    settings = read_settings(api_url=api_url, home=home)
    with AdminClient(settings.url) as client:
        client.remove_scope(name, key=for_changing(settings))
    out.print(f"Scope {escape(name)} is deleted.")


@group.command("reset", epilog="Example: [bold]headrace scopes reset flights --from now[/bold]")
def reset_scope(name: Name, begin: From, yes: Yes = False, api_url: ApiUrl = None, home: Home = None) -> None:
    """Reset the scope of a stopped pipeline. Its open runs and all that waits are given up; tables keep what they have."""
    asked = ResetScope(begin=first_event(begin))
    settings = read_settings(api_url=api_url, home=home)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        known = ScopeList.model_validate(client.scopes()).scopes
        found = next((scope for scope in known if scope.scope == name and scope.kind == "pipeline"), None)
        if found is not None and not yes and not typer.confirm(f"Reset {name}? Given up: {_given_up(found)}."):
            raise typer.Abort
        done = ScopeReset.model_validate(client.reset_scope(name, asked, key=for_changing(settings)))
    out.print(f"Scope {name} starts with event {done.first}. Given up: {_given_up(done)}.", markup=False)


def _given_up(scope: ScopeStatus | ScopeReset) -> str:
    """Return what a reset gives up, in words."""
    counts = {"open run": scope.open_runs, "waiting event": scope.waiting, "held event": scope.held}
    return ", ".join(f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in counts.items() if count) or "nothing"


def show_scopes(found: Sequence[ScopeStatus], now: datetime) -> None:
    """Show scopes as a table, as they are at `now`."""
    show(
        [
            "scope",
            "#cursor",
            "#lag",
            "#open runs",
            "#held",
            "#waiting",
            "longest",
            "#ordered",
            "#lost",
            "#late",
            "#cycles",
            "~batch",
            "updated",
        ],
        [
            (s.scope, s.cursor, s.lag, s.open_runs, s.held, s.waiting, _longest(s, now), *_counts(s), _batch(s, now), ago(s.updated))
            for s in found
        ],
        empty=NOBODY,
    )


def _counts(scope: ScopeStatus) -> tuple[int, ...]:
    return scope.ordered, scope.lost, scope.late, scope.cycles


def _longest(scope: ScopeStatus, now: datetime) -> str | None:
    """Return how long that has waited which waits longest."""
    if scope.waiting_since is None:
        return None
    at = now if scope.clock_until is None else min(now, scope.clock_until)
    return lasts((at - scope.waiting_since).total_seconds())


def _batch(scope: ScopeStatus, now: datetime) -> str | None:
    """Return which batch a pipeline's scope is at, or how fast its last one was."""
    if scope.kind != "pipeline":
        return None
    if scope.underway is not None:
        return f"{scope.underway.batch} runs for {lasts((now - scope.underway.since).total_seconds())}"
    return f"{scope.batch}, {scope.read / scope.seconds:,.0f} events/s" if scope.read and scope.seconds else str(scope.batch)
