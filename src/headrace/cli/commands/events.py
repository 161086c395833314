"""`headrace events`: the newest of the log; `headrace events waiting`: which wait, for whom and how long."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.console import out
from headrace.cli.credentials import admin_client, for_looking
from headrace.cli.options import ApiUrl, AsJson, Limit, is_alone
from headrace.cli.rendering import ago, lasts, show, show_json
from headrace.client.admin.client import AdminClient
from headrace.settings import read_settings
from headrace.wire.base import WireModel
from headrace.wire.pipelines.scopes import ScopeList, Wait, WaitPage
from headrace.wire.status.status import EventPage

EXAMPLES = """Examples:

[bold]headrace events -n 50 --subject N14228[/bold]

[bold]headrace events waiting --scope flights[/bold]"""
WAITING = """Examples:

[bold]headrace events waiting[/bold]

[bold]headrace events waiting --scope webhook:billing -n 100[/bold]

[bold]headrace events waiting --json | jq .scopes[].waits[0][/bold]"""

Longest = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most this many of each scope, the oldest first.")]
Scope = Annotated[str | None, typer.Option("--scope", help="Only of this scope, as `headrace status` names it.", show_default=False)]
Type = Annotated[str | None, typer.Option("--type", help="Only events of this type.", show_default=False)]
Subject = Annotated[str | None, typer.Option("--subject", help="Only events on this subject.", show_default=False)]

group = typer.Typer(
    help="List the newest events of the log. With a command: events that wait for their leaders.",
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


class Waiting(WireModel):
    """What `headrace events waiting --json` prints."""

    scopes: list[WaitPage]


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="events", rich_help_panel="Inspect and repair")


@group.callback(invoke_without_command=True)
def events(
    context: typer.Context, api_url: ApiUrl = None, limit: Limit = 20, type: Type = None, subject: Subject = None, json: AsJson = False
) -> None:
    """List the newest events of the log. With a command: events that wait for their leaders."""
    if not is_alone(context):
        return
    with admin_client(api_url) as client:
        found = EventPage.model_validate(client.events(limit=limit, type=type, subject=subject))
    if json:
        show_json(found)
        return
    show(
        ["#seq", "id", "follows", "subject", "received", "~triggers"],
        [(e.seq, e.id, e.follows, e.subject, ago(e.received), ", ".join(e.triggers)) for e in found.events],
        empty="No such event is in the log.",
    )


@group.command("waiting", epilog=WAITING)
def waiting(api_url: ApiUrl = None, scope: Scope = None, limit: Longest = 20, json: AsJson = False) -> None:
    """List the events that wait: for whom, for how long, and when their leader will count as lost."""
    settings = read_settings(api_url=api_url)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        names = [one.scope for one in ScopeList.model_validate(client.scopes()).scopes] if scope is None else [scope]
        pages = [WaitPage.model_validate(client.waiting(name, limit=limit)) for name in names]
    if json:
        show_json(Waiting(scopes=pages))
        return
    if not pages:
        out.print("No scope has read the log yet: start one with `headrace pipeline`.", markup=False)
    for page in pages:
        _show(page)


def words(wait: Wait, page: WaitPage) -> str:
    """Return in a line who waits for whom, for how long, and what ends that."""
    waited = lasts((page.at - wait.since).total_seconds())
    return f"{wait.id} waits for {wait.follows}, for {waited}{_until(wait, page)}"


def _until(wait: Wait, page: WaitPage) -> str:
    if wait.lost_at is not None:
        left = (wait.lost_at - page.at).total_seconds()
        return f" (until it counts as lost: {lasts(left)})" if left > 0 else " (which counts as lost any moment)"
    why = {
        "missing": "",
        "waiting": " (which waits itself)",
        "underway": " (in progress)",
        "dead": f" (which was given up on; to try it again: headrace webhooks redrive {page.scope.removeprefix('webhook:')})",
    }
    return why[wait.leader]


def _show(page: WaitPage) -> None:
    if not page.waiting:
        out.print(f"{page.scope}: nothing waits; all that came has been released.", markup=False)
        return
    out.print(f"{page.scope}: {page.waiting:,} {'waits' if page.waiting == 1 else 'wait'}", markup=False)
    for wait in page.waits:
        out.print(f"  {words(wait, page)}", markup=False)
    if page.waiting > len(page.waits):
        out.print(f"  and {page.waiting - len(page.waits):,} more", markup=False)
