"""`headrace triggers`: list them; `… show|resume NAME`: why one failed, and letting it start again; `… backlog drop NAME`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.console import out
from headrace.cli.credentials import admin_client, for_changing, for_looking
from headrace.cli.options import ApiUrl, AsJson, Home, is_alone
from headrace.cli.rendering import ago, show, show_json, when
from headrace.client.admin.client import AdminClient
from headrace.errors import UsageError
from headrace.settings import read_settings
from headrace.wire.status.status import Status, TriggerList, TriggerStatus
from headrace.wire.status.triggerers import BacklogDropped, TriggerDetail

group = typer.Typer(
    help="List the triggers. With a command: look at one that failed, or let it start again.",
    epilog="Example: [bold]headrace triggers resume legs.united[/bold]",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)

backlog = typer.Typer(
    help="Manage the backlogs of triggers.",
    epilog="Example: [bold]headrace triggers backlog drop legs.united[/bold]",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
group.add_typer(backlog, name="backlog")

Name = Annotated[str, typer.Argument(help="Its name, as `headrace triggers` shows it.", metavar="NAME")]


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="triggers", rich_help_panel="Inspect and repair")


@group.callback(invoke_without_command=True)
def triggers(context: typer.Context, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the triggers: who watches, and how often each fired. With a command: look at one, or let it start again."""
    if not is_alone(context):
        return
    with admin_client(api_url) as client:
        found = TriggerList.model_validate(client.triggers())
    if json:
        show_json(found)
        return
    show(
        ["trigger", "state", "#fired", "#rejected", "#conflicts", "#backlog", "~stream", "!problem"],
        [(t.name, t.state, t.fired, t.rejected, t.conflicts, t.backlog, t.stream, problem_of(t)) for t in found.triggers],
        empty="No trigger is registered yet: start one with `headrace triggerer --project project.py`.",
    )


@group.command("show", epilog="Example: [bold]headrace triggers show legs.united[/bold]")
def show_trigger(name: Name, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show one trigger: what it is, who runs it, and the traceback of its last failure."""
    settings = read_settings(api_url=api_url)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        found = TriggerDetail.model_validate(client.trigger(_id(client, name)))
    if json:
        show_json(found)
        return
    times = {"running since": found.since, "last failed": found.failed, "starts again": found.retry_at if found.state == "failed" else None}
    shown = found.model_dump(exclude={"traceback", "stack", "failed", "since", "retry_at", "blocking", "unserved", "failure"})
    shown |= {what: None if moment is None else when(moment) for what, moment in times.items()} | {"failure": found.failure}
    show(["what", "is"], [(what, None if value is None else str(value)) for what, value in shown.items()], empty="")
    for line in found.traceback:
        out.print(escape(line))
    if found.blocking is not None or found.unserved is not None:
        out.print(f"{found.name}: {problem_of(found)}", style="red", markup=False)
    for line in found.stack:
        out.print(f"  {escape(line)}")


@group.command("resume", epilog="Example: [bold]headrace triggers resume legs.united[/bold]")
def resume(name: Name, api_url: ApiUrl = None, home: Home = None) -> None:
    """Start a trigger that is parked or waits after a failure. It takes its backlog first."""
    settings = read_settings(api_url=api_url, home=home)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        client.resume(_id(client, name), key=for_changing(settings))
    out.print(f"{name} starts again.", markup=False)


@backlog.command("drop", epilog="Example: [bold]headrace triggers backlog drop legs.united[/bold]")
def drop_backlog(name: Name, yes: Yes = False, api_url: ApiUrl = None, home: Home = None) -> None:
    """Drop what is kept for a trigger, also for one that its project does not declare any more. It cannot be taken back."""
    settings = read_settings(api_url=api_url, home=home)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        kept = [one for one in Status.model_validate(client.status()).backlogs if one.trigger == name]
        if not kept:
            raise UsageError(f"Nothing is kept for a trigger named '{name}'.", hint="For what is kept: headrace status")
        depth = sum(one.depth for one in kept)
        if not yes and not typer.confirm(f"Drop {depth:,} raw events that are kept for {name}?"):
            raise typer.Abort
        dropped = [BacklogDropped.model_validate(client.drop_backlog(one.trigger_id, key=for_changing(settings))).dropped for one in kept]
    out.print(f"{sum(dropped):,} raw events dropped.", markup=False)


def _id(client: AdminClient, name: str) -> int:
    for one in TriggerList.model_validate(client.triggers()).triggers:
        if one.name == name:
            return one.id
    raise UsageError(f"No trigger has the name '{name}'.", hint="For what there is: headrace triggers")


def problem_of(trigger: TriggerStatus) -> str:
    """Return in a line what is wrong with a trigger, or lately was; nothing where nothing ever was."""
    if trigger.blocking is not None:
        return f"blocks its process for {trigger.blocking:.0f} s: it does nothing else"
    if trigger.unserved is not None:
        return trigger.unserved
    if trigger.failed is None:
        return ""
    since = "" if trigger.since is None else f", running since {ago(trigger.since)}"
    return f"last failed {ago(trigger.failed)}{since}: {trigger.failure}"
