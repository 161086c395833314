"""`headrace triggers`: the triggers, why one failed, its restart, and the deletion of its backlog."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.console import out
from headrace.cli.credentials import admin_client, for_changing
from headrace.cli.groups import INSPECT, command_group, examples, list_group
from headrace.cli.options import ApiUrl, AsJson, Home, Yes
from headrace.cli.rendering import ago, ago_or_ahead, long, number, problem, render, render_facts
from headrace.client.admin.client import AdminClient
from headrace.errors import UsageError
from headrace.settings import read_settings
from headrace.wire.calls import admin as calls
from headrace.wire.status.status import TriggerStatus

group = list_group("List the triggers, show why one failed, or restart it.", "headrace triggers resume legs.united")
backlog = command_group("Manage the backlogs of triggers.", "headrace triggers backlog drop legs.united")
group.add_typer(backlog, name="backlog")

Name = Annotated[str, typer.Argument(help="Its name, from `headrace triggers`.", metavar="NAME", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="triggers", rich_help_panel=INSPECT)


@group.command("list", epilog=examples("headrace triggers list --json | jq .triggers[].name"))
def list_triggers(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the triggers: their states, streams and counters."""
    with admin_client(read_settings(api_url=api_url)) as client:
        page = client.triggers()
    render(
        page,
        ["trigger", "state", *map(number, ("fired", "rejected", "conflicts", "backlog")), long("stream"), problem("problem")],
        [(t.name, t.state, t.fired, t.rejected, t.conflicts, t.backlog, t.stream, problem_of(t)) for t in page.triggers],
        json=json,
        empty="There are no triggers. Start them with `headrace triggerer --project project.py`.",
    )


@group.command("show", epilog=examples("headrace triggers show legs.united"))
def show_trigger(name: Name, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show one trigger: its declaration, its triggerer, and the traceback of its last failure."""
    with admin_client(read_settings(api_url=api_url)) as client:
        trigger = client.read(calls.GET_TRIGGER, trigger_id=_id(client, name))
    times = {"running since": trigger.since, "last failed": trigger.failed}
    times["restarts"] = trigger.retry_at if trigger.state == "failed" else None
    facts = trigger.model_dump(exclude={"traceback", "stack", "failed", "since", "retry_at", "blocking", "unserved", "failure"})
    facts |= {what: None if time is None else ago_or_ahead(time) for what, time in times.items()} | {"failure": trigger.failure}
    render_facts(trigger, facts, json=json, text="\n".join(trigger.traceback))
    if json:
        return
    if trigger.blocking is not None or trigger.unserved is not None:
        out.print(f"{trigger.name}: {problem_of(trigger)}", style="red", markup=False)
    for line in trigger.stack:
        out.print(f"  {escape(line)}")


@group.command("resume", epilog=examples("headrace triggers resume legs.united"))
def resume(name: Name, api_url: ApiUrl = None, home: Home = None) -> None:
    """Restart a trigger that is parked or waits after a failure. It processes its backlog first."""
    settings = read_settings(api_url=api_url, home=home)
    with admin_client(settings) as client:
        client.request(calls.RESUME_TRIGGER, None, credential=for_changing(settings), trigger_id=_id(client, name))
    out.print(f"{name} restarts.", markup=False)


@backlog.command("drop", epilog=examples("headrace triggers backlog drop legs.united"))
def drop_backlog(name: Name, yes: Yes = False, api_url: ApiUrl = None, home: Home = None) -> None:
    """Delete the backlog of a trigger, also of one that its project does not declare any more. This cannot be undone."""
    settings = read_settings(api_url=api_url, home=home)
    with admin_client(settings) as client:
        backlogs = [one for one in client.read(calls.GET_STATUS).backlogs if one.trigger == name]
        if not backlogs:
            raise UsageError(f"No backlog of a trigger named '{name}'.", hint="To see the backlogs: headrace status")
        depth = sum(one.depth for one in backlogs)
        if not yes and not typer.confirm(f"Delete {depth:,} raw events from the backlog of {name}?"):
            raise typer.Abort
        key = for_changing(settings)
        dropped = [client.request(calls.DROP_BACKLOG, None, credential=key, trigger_id=one.trigger_id).dropped for one in backlogs]
    out.print(f"{sum(dropped):,} raw events deleted.", markup=False)


def problem_of(trigger: TriggerStatus) -> str:
    """Return one line about the current or last problem of a trigger, or an empty text."""
    if trigger.blocking is not None:
        return f"blocks its process for {trigger.blocking:.0f} s: it does nothing else"
    if trigger.unserved is not None:
        return trigger.unserved
    if trigger.failed is None:
        return ""
    since = "" if trigger.since is None else f", running since {ago(trigger.since)}"
    return f"last failed {ago(trigger.failed)}{since}: {trigger.failure}"


def _id(client: AdminClient, name: str) -> int:
    for one in client.triggers().triggers:
        if one.name == name:
            return one.id
    raise UsageError(f"No trigger has the name '{name}'.", hint="To see the triggers: headrace triggers")
