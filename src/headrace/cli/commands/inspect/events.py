"""`headrace events`: the newest events of the log, one event, and (`events waiting`) events that wait for their leaders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from headrace.cli.console import out
from headrace.cli.credentials import admin_client
from headrace.cli.groups import INSPECT, examples, list_group
from headrace.cli.json_arguments import read_match
from headrace.cli.options import ApiUrl, AsJson, Limit, Match
from headrace.cli.rendering import ago, duration, long, number, print_json, render, render_facts
from headrace.client.admin.client import AdminClient
from headrace.core.matching.payloads import pattern_text
from headrace.settings import read_settings
from headrace.wire.base import WireModel
from headrace.wire.calls import admin as calls
from headrace.wire.pipelines.scopes import EventInScope, FollowerWait, Mark, WaitPage
from headrace.wire.status.status import EventDetail, EventPage, EventSummary

WaitLimit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number per scope, the oldest first.", metavar="N")]
Scope = Annotated[str | None, typer.Option("--scope", help="Only of this scope, from `headrace scopes`.", metavar="NAME")]
Type = Annotated[str | None, typer.Option("--type", help="Only events of this type.", metavar="TYPE")]
Subject = Annotated[str | None, typer.Option("--subject", help="Only events with this subject.", metavar="SUBJECT")]
Seq = Annotated[int, typer.Argument(help="Its seq, from `headrace events`.", metavar="SEQ", min=1, show_default=False)]

_MARKS: Final[dict[Mark, str]] = {
    "lost": "as lost: its leader did not arrive within the lookback",
    "late": "as late: it arrived after a follower of it was released as lost",
    "cycle": "as part of a cycle: it follows itself through others",
}

group = list_group("List the newest events, show one event, or list the events that wait for their leaders.", "headrace events waiting")


class Waiting(WireModel):
    """What `headrace events waiting --json` prints."""

    scopes: list[WaitPage]


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="events", rich_help_panel=INSPECT)


LIST: Final = examples(
    "headrace events",
    "headrace events list -n 50 --subject N14228",
    """headrace events list --match '{"status": ["paid"], "total": [{"numeric": [">", 100]}]}'""",
)


@group.command("list", epilog=LIST)
def list_events(
    api_url: ApiUrl = None, limit: Limit = 20, type: Type = None, subject: Subject = None, match: Match = None, json: AsJson = False
) -> None:
    """List the newest events of the log. With --type, --subject or --match, the whole log is searched until there are enough."""
    filters = {"type": type, "subject": subject, "match": None if match is None else pattern_text(read_match(match), "--match")}
    with admin_client(read_settings(api_url=api_url)) as client:
        page = _newest(client, limit, filters)
    render(
        page,
        [number("seq"), "id", "follows", "subject", "received", long("triggers")],
        [(e.seq, e.id, e.follows, e.subject, ago(e.received), ", ".join(e.triggers)) for e in page.events],
        json=json,
        empty="The log has no such event.",
    )


@group.command("show", epilog=examples("headrace events show 1207", "headrace events show 1207 --json | jq .scopes"))
def show_event(seq: Seq, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show one event: its leader, its position and mark in each scope or why it waits, its runs and its payload."""
    with admin_client(read_settings(api_url=api_url)) as client:
        event = client.read(calls.GET_EVENT, seq=seq)
    render_facts(event, _facts(event), json=json)
    if json:
        return
    for scope in event.scopes:
        out.print(describe_in_scope(event, scope), markup=False)
    if not event.scopes:
        out.print("No scope has this event.", markup=False)
    out.print(event.payload, markup=False)


def _newest(client: AdminClient, limit: int, filters: Mapping[str, str | None]) -> EventPage:
    """Return the newest events that pass the filters.

    With a filter, a page covers a limited part of the log, so an empty page is not the end.
    """
    events: list[EventSummary] = []
    before = None
    while True:
        page = client.read(calls.LIST_EVENTS, {"before": before, "limit": limit - len(events), **filters})
        events += page.events
        before = page.before
        if before is None or len(events) >= limit:
            return EventPage(events=events, after=page.after, before=before)


def _facts(event: EventDetail) -> dict[str, Any]:
    names = ("seq", "type", "id", "source", "subject", "follows")
    return {name: getattr(event, name) for name in names} | {
        "leader": _leader(event),
        "occurred": event.occurred,
        "received": event.received,
        "stream": event.stream,
        "lane": event.lane,
        "position in lane": event.position,
        "triggers": ", ".join(event.triggers),
        "runs": ", ".join(f"{run.run_id} ({run.state})" for run in event.runs) or None,
    }


def _leader(event: EventDetail) -> str | None:
    if event.leader is None:
        return None
    if event.leader.received is None:
        return f"event {event.leader.seq}, which is pruned" if event.leader.state == "pruned" else "not in the log"
    later = (event.leader.received - event.received).total_seconds()
    return f"event {event.leader.seq}, received {duration(abs(later))} {'after' if later > 0 else 'before'} this event"


def describe_in_scope(event: EventDetail, scope: EventInScope) -> str:
    """Return one line: the position and mark of the event in the scope, or why it waits."""
    if scope.wait is not None:
        return f"{scope.scope}: {describe(scope.wait, scope)}"
    if scope.state == "waiting":
        return f"{scope.scope}: waits for {event.follows}. The start is reported only for the 100 longest waits of a scope."
    if scope.state == "unread":
        return f"{scope.scope}: not read yet"
    ends = {
        "in_progress": ", to be handled",
        "dead": f", given up. To retry: headrace webhooks redrive {scope.scope.removeprefix('webhook:')}",
    }
    mark = "" if scope.mark is None else f" {_MARKS[scope.mark]}"
    return f"{scope.scope}: released at position {scope.position:,}{mark}{ends.get(scope.state, '')}"


@group.command(
    "waiting",
    epilog=examples(
        "headrace events waiting",
        "headrace events waiting --scope webhook:billing -n 100",
        "headrace events waiting --json | jq .scopes[].waits[0]",
    ),
)
def waiting(api_url: ApiUrl = None, scope: Scope = None, limit: WaitLimit = 20, json: AsJson = False) -> None:
    """List waiting events: the leader of each, how long it has waited, and when its leader counts as lost."""
    with admin_client(read_settings(api_url=api_url)) as client:
        names = [one.scope for one in client.read(calls.LIST_SCOPES).scopes] if scope is None else [scope]
        pages = [client.read(calls.LIST_WAITING_EVENTS, {"limit": limit}, scope=name) for name in names]
    if json:
        print_json(Waiting(scopes=pages))
        return
    if not pages:
        out.print("There are no scopes. Start one with `headrace pipeline`.", markup=False)
    for page in pages:
        _print_page(page)


def describe(wait: FollowerWait, page: WaitPage | EventInScope) -> str:
    """Return one line: the event, its leader, how long it has waited by the scope's clock, and what ends the wait."""
    waited = duration((page.at - wait.since).total_seconds())
    return f"{wait.id} waits for {wait.follows}, for {waited}{_end(wait, page)}"


def _end(wait: FollowerWait, page: WaitPage | EventInScope) -> str:
    if wait.lost_at is not None:
        left = (wait.lost_at - page.at).total_seconds()
        return f" (until it counts as lost: {duration(left)})" if left > 0 else " (which counts as lost any moment)"
    ends = {
        "missing": "",
        "waiting": " (which waits itself)",
        "in_progress": " (in progress)",
        "dead": f" (which was given up. To retry: headrace webhooks redrive {page.scope.removeprefix('webhook:')})",
    }
    return ends[wait.leader]


def _print_page(page: WaitPage) -> None:
    if not page.waiting:
        out.print(f"{page.scope}: no event waits. All events have been released.", markup=False)
        return
    out.print(f"{page.scope}: {page.waiting:,} {'waits' if page.waiting == 1 else 'wait'}", markup=False)
    for wait in page.waits:
        out.print(f"  {describe(wait, page)}", markup=False)
    if page.waiting > len(page.waits):
        out.print(f"  and {page.waiting - len(page.waits):,} more", markup=False)
