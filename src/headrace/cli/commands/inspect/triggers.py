"""`headrace triggers`: the triggers, why one failed or did not fire, its restart, and the deletion of its backlog."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.markup import escape

from headrace.cli.console import out
from headrace.cli.credentials import admin_client, for_changing
from headrace.cli.groups import INSPECT, command_group, examples, list_group
from headrace.cli.options import ApiUrl, AsJson, Home, Yes
from headrace.cli.rendering import ago, ago_or_ahead, long, number, print_json, print_table, problem, render, render_facts
from headrace.client.admin.client import AdminClient
from headrace.errors import UsageError
from headrace.settings import read_settings
from headrace.wire.calls import admin as calls
from headrace.wire.status.status import TriggerStatus
from headrace.wire.status.triggerers import TriggerDetail

group = list_group("List the triggers, show why one failed or did not fire, or restart it.", "headrace triggers resume legs.united")
backlog = command_group("Manage the backlogs of triggers.", "headrace triggers backlog drop legs.united")
group.add_typer(backlog, name="backlog")

_SEPARATE: Final = {
    *("traceback", "stack", "failed", "since", "retry_at", "blocking", "unserved", "failure"),
    *("is_watch", "pattern", "pattern_hidden", "sampled"),
}

Name = Annotated[str, typer.Argument(help="Its name, from `headrace triggers`.", metavar="NAME", show_default=False)]
Event = Annotated[
    str, typer.Argument(help="Its seq or its id, from `headrace events`. With --id: its id.", metavar="EVENT", show_default=False)
]
ById = Annotated[bool, typer.Option("--id", help="EVENT is an id, also if it is a number.")]
Project = Annotated[str | None, typer.Option("--project", help="The project, if several have a trigger of this name.", metavar="PROJECT")]


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


@group.command(
    "show",
    epilog=examples(
        "headrace triggers show legs.united",
        ("headrace triggers show legs.united --json | jq -r .pattern", "the pattern of a watch, for `headrace match`"),
    ),
)
def show_trigger(name: Name, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show one trigger: its declaration with the pattern of a watch, its triggerer, and the traceback of its last failure."""
    with admin_client(read_settings(api_url=api_url)) as client:
        trigger = client.read(calls.GET_TRIGGER, trigger_id=_id(client, name))
    times = {"running since": trigger.since, "last failed": trigger.failed}
    times["restarts"] = trigger.retry_at if trigger.state == "failed" else None
    facts = trigger.model_dump(exclude=_SEPARATE)
    facts |= {what: None if time is None else ago_or_ahead(time) for what, time in times.items()}
    facts |= {"pattern": _pattern(trigger), "failure": trigger.failure}
    render_facts(trigger, facts, json=json, text="\n".join(trigger.traceback))
    if json:
        return
    if trigger.blocking is not None or trigger.unserved is not None:
        out.print(f"{trigger.name}: {problem_of(trigger)}", style="red", markup=False)
    _print_samples(trigger)
    for line in trigger.stack:
        out.print(f"  {escape(line)}")


@group.command(
    "why",
    epilog=examples(
        "headrace triggers why orders.late 1207",
        ("headrace triggers why orders.late order-17", "the event with this id"),
        "headrace triggers why orders.late 1207 --json | jq .reason",
    ),
)
def why(name: Name, event: Event, by_id: ById = False, project: Project = None, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Say why a trigger fired on an event of the log or did not.

    The answer comes from the log, the backlogs, the dead letters and the declaration of the trigger. For a watch that does not match, it
    names a field that fails and its value, as `headrace match` does.
    """
    with admin_client(read_settings(api_url=api_url)) as client:
        explanation = client.read(calls.EXPLAIN_FIRING, {"trigger": name, "event": event, "by_id": by_id, "project": project})
    if json:
        print_json(explanation)
        return
    out.print(explanation.text, markup=False)
    for note in explanation.notes:
        out.print(f"  {note}", markup=False)
    if explanation.runs:
        out.print(f"  Pipeline runs with the event: {', '.join(explanation.runs)}", markup=False)


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


def _print_samples(trigger: TriggerDetail) -> None:
    """Print how often each field of the pattern of a watch failed."""
    if trigger.sampled is None:
        return
    samples, newest = trigger.sampled.samples, ago(trigger.sampled.updated)
    rows = [(leaf.path, f"{leaf.failed / max(1, samples):.0%}", samples) for leaf in trigger.sampled.leaves]
    print_table(["field of the pattern", number("failed"), number("sampled")], rows)
    out.print(f"{trigger.sampled.matched:,} of {samples:,} sampled raw events match. The newest: {newest}.", markup=False)


def _pattern(trigger: TriggerDetail) -> str | None:
    """Return the pattern of a watch as JSON, or why it is not shown."""
    if trigger.pattern is not None:
        return trigger.pattern
    if trigger.pattern_hidden is not None:
        return f"not shown: {trigger.pattern_hidden}"
    return "all raw events" if trigger.is_watch else None


def _id(client: AdminClient, name: str) -> int:
    for one in client.triggers().triggers:
        if one.name == name:
            return one.id
    raise UsageError(f"No trigger has the name '{name}'.", hint="To see the triggers: headrace triggers")
