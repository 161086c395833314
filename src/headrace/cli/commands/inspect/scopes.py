"""`headrace scopes`: the consumers of the log, how far they have read, and the events that the log retains for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final

import typer
from rich.markup import escape

from headrace.cli.console import out
from headrace.cli.credentials import admin_client, for_changing
from headrace.cli.groups import INSPECT, examples, list_group
from headrace.cli.options import ApiUrl, AsJson, Home, Yes, first_event
from headrace.cli.rendering import Columns, ago, count, duration, long, number, print_table, render
from headrace.client.admin.client import AdminClient
from headrace.settings import read_settings
from headrace.wire.calls import admin as calls
from headrace.wire.pipelines.scopes import ResetScope, ScopeReset, ScopeStatus

NO_SCOPES: Final = "There are no scopes. Start one with `headrace pipeline`."
COUNTERS: Final = ("ordered", "lost", "late", "cycles")

Name = Annotated[str, typer.Argument(help="Its name, from `headrace scopes`.", metavar="NAME", show_default=False)]
From = Annotated[str, typer.Option("--from", help="First event to read: its seq, or 'now'.", metavar="SEQ|now", show_default=False)]

group = list_group("List, reset or remove scopes: the consumers of the log.", "headrace scopes remove old-project")


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="scopes", rich_help_panel=INSPECT)


@group.command("list", epilog=examples("headrace scopes list --json | jq .scopes[].needs"))
def list_scopes(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the scopes. The log retains all events from the oldest that a scope needs."""
    with admin_client(read_settings(api_url=api_url)) as client:
        page = client.read(calls.LIST_SCOPES)
    columns: Columns = ["scope", "kind", number("cursor"), number("lag"), number("open runs"), "updated", "oldest needed event received"]
    rows = [(s.scope, s.kind, s.cursor, s.lag, s.open_runs, ago(s.updated), None if s.needs is None else ago(s.needs)) for s in page.scopes]
    render(page, columns, rows, json=json, empty=NO_SCOPES)


@group.command("remove", epilog=examples("headrace scopes remove old-project"))
def remove_scope(name: Name, api_url: ApiUrl = None, home: Home = None) -> None:
    """Remove the scope of a pipeline that has stopped permanently. The log retains no events for it any more."""
    settings = read_settings(api_url=api_url, home=home)
    with AdminClient(settings.url) as client:
        client.request(calls.REMOVE_SCOPE, None, credential=for_changing(settings), scope=name)
    out.print(f"Scope {escape(name)} is deleted.")


@group.command("reset", epilog=examples("headrace scopes reset flights --from now"))
def reset_scope(name: Name, first: From, yes: Yes = False, api_url: ApiUrl = None, home: Home = None) -> None:
    """Reset the scope of a stopped pipeline. Its open runs and waiting events are given up; tables keep their rows."""
    request = ResetScope(begin=first_event(first))
    settings = read_settings(api_url=api_url, home=home)
    with admin_client(settings) as client:
        scopes = client.read(calls.LIST_SCOPES).scopes
        match = next((scope for scope in scopes if scope.scope == name and scope.kind == "pipeline"), None)
        if match is not None and not yes and not typer.confirm(f"Reset {name}? Given up: {_given_up(match)}."):
            raise typer.Abort
        result = client.request(calls.RESET_SCOPE, request, credential=for_changing(settings), scope=name)
    out.print(f"Scope {name} starts with event {result.first}. Given up: {_given_up(result)}.", markup=False)


def print_scopes(scopes: Sequence[ScopeStatus], now: datetime) -> None:
    """Print scopes as a table, as they are at `now`."""
    columns: Columns = [
        "scope",
        *map(number, ("cursor", "lag", "open runs", "held", "waiting")),
        "max wait",
        *map(number, ("ordered", "lost", "late", "cycles")),
    ]
    rows = [
        (s.scope, s.cursor, s.lag, s.open_runs, s.held, s.waiting, _max_wait(s, now), *_counters(s), _batch(s, now), ago(s.updated))
        for s in scopes
    ]
    print_table([*columns, long("batch"), "updated"], rows, empty=NO_SCOPES)


def _given_up(scope: ScopeStatus | ScopeReset) -> str:
    """Return what a reset gives up, in words."""
    counts = {"open run": scope.open_runs, "waiting event": scope.waiting, "held event": scope.held}
    return ", ".join(count(value, noun) for noun, value in counts.items() if value) or "nothing"


def _counters(scope: ScopeStatus) -> tuple[int, ...]:
    return tuple(getattr(scope, name) for name in COUNTERS)


def _max_wait(scope: ScopeStatus, now: datetime) -> str | None:
    """Return how long the oldest waiting event has waited, or None if no event waits."""
    if scope.waiting_since is None:
        return None
    at = now if scope.clock_until is None else min(now, scope.clock_until)
    return duration((at - scope.waiting_since).total_seconds())


def _batch(scope: ScopeStatus, now: datetime) -> str | None:
    """Return the running batch of a pipeline's scope, or the rate of its last one."""
    if scope.kind != "pipeline":
        return None
    if scope.running_batch is not None:
        return f"{scope.running_batch.batch} runs for {duration((now - scope.running_batch.since).total_seconds())}"
    return f"{scope.batch}, {scope.read / scope.seconds:,.0f} events/s" if scope.read and scope.seconds else str(scope.batch)
