"""`headrace status` and `version`, and the lists of `events`, `triggers` and `runs`: looking, changing nothing."""

from __future__ import annotations

import platform
from typing import TypeVar

import typer
from pydantic import BaseModel

import headrace
from headrace.cli.console import out
from headrace.cli.credentials import for_looking
from headrace.cli.options import ApiUrl, AsJson, Limit
from headrace.cli.scopes import show_scopes
from headrace.cli.tables import ago, show, show_json
from headrace.client.people import PeopleClient
from headrace.settings import read_settings
from headrace.wire.model import API_VERSION
from headrace.wire.status import EventPage, RunList, Status, TriggerList, TriggerStatus

M = TypeVar("M", bound=BaseModel)
RUNNING = ("running", "silent")


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    panel = "Looking"
    app.command("status", rich_help_panel=panel, epilog="Example: [bold]headrace status --json | jq .totals[/bold]")(status)
    app.command("runs", rich_help_panel=panel)(runs)
    app.command("version", rich_help_panel=panel, epilog="Example: [bold]headrace version[/bold]")(version)


def status(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show the totals and how far each scope has come."""
    with _client(api_url) as client:
        now = _read(Status, client.status())
    if json:
        show_json(now)
        return
    show(["what", "#count"], [(name, count) for name, count in now.totals.model_dump().items()], empty="")
    show(
        ["job", "process", "state", "wanted", "host", "#capacity", "#held", "heartbeat"],
        [
            (str(j.id), j.kind, j.state, j.wanted, f"{j.hostname}, {j.pid}", j.capacity, j.held, ago(j.last_heartbeat))
            for j in now.jobs
            if j.state in RUNNING
        ],
        empty="No process is running.",
    )
    if waiting := [t for t in now.triggers if t.unserved or t.blocking or t.state in ("failed", "parked")]:
        show(["trigger", "state", "!trouble"], [(t.name, t.state, trouble(t)) for t in waiting], empty="")
    show_scopes(now.scopes, now.now)
    if any(s.waiting for s in now.scopes):
        out.print("Who waits for whom: headrace events waiting", markup=False)
    if now.log.since is not None:
        holders = [s.scope for s in now.scopes if s.needs is not None and s.needs <= now.log.since]
        held = f", and is kept from there on for {', '.join(holders)}" if holders else ""
        out.print(f"The log goes back to event {now.log.first:,}, which came {ago(now.log.since)}{held}.", markup=False)


def triggers(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the triggers: who watches, and how often each fired."""
    with _client(api_url) as client:
        found = _read(TriggerList, client.triggers())
    if json:
        show_json(found)
        return
    show(
        ["trigger", "state", "#fired", "#rejected", "#backlog", "~stream", "!trouble"],
        [(t.name, t.state, t.fired, t.rejected, t.backlog, t.stream, trouble(t)) for t in found.triggers],
        empty="No trigger is registered yet: start one with `headrace triggerer --project project.py`.",
    )


def events(api_url: str | None, limit: int, type: str | None, subject: str | None, json: bool) -> None:
    """List the newest events of the log."""
    with _client(api_url) as client:
        found = _read(EventPage, client.events(limit=limit, type=type, subject=subject))
    if json:
        show_json(found)
        return
    show(
        ["#seq", "id", "follows", "subject", "received", "~triggers"],
        [(e.seq, e.id, e.follows, e.subject, ago(e.received), ", ".join(e.triggers)) for e in found.events],
        empty="No such event is in the log.",
    )


def runs(api_url: ApiUrl = None, limit: Limit = 20, json: AsJson = False) -> None:
    """List the newest runs of the pipelines."""
    with _client(api_url) as client:
        found = _read(RunList, client.runs())
    if json:
        show_json(found)
        return
    rows = [
        (
            r.pipeline,
            r.state,
            r.batch,
            r.attempt,
            r.events,
            r.rows,
            f"{(r.finished - r.started).total_seconds():.2f} s" if r.finished else None,
            ago(r.started),
            (r.error or "").partition("\n")[0],
        )
        for r in found.runs[:limit]
    ]
    show(
        ["pipeline", "state", "#batch", "#attempt", "#events", "#rows", "#took", "started", "!error"],
        rows,
        empty="No pipeline has run yet: one runs when there are events for it.",
    )


def trouble(trigger: TriggerStatus) -> str:
    """Return in a line what is wrong with a trigger, or lately was; nothing where nothing ever was."""
    if trigger.blocking is not None:
        return f"blocks its triggerer for {trigger.blocking:.0f} s: no other trigger runs there"
    if trigger.unserved is not None:
        return trigger.unserved
    if trigger.failed is None:
        return ""
    since = "" if trigger.since is None else f", running since {ago(trigger.since)}"
    return f"last failed {ago(trigger.failed)}{since}: {trigger.failure}"


def version() -> None:
    """Show the versions of Headrace, its api and Python."""
    out.print(f"headrace {headrace.__version__}, api {API_VERSION}, Python {platform.python_version()}")


def _client(api_url: str | None) -> PeopleClient:
    settings = read_settings(api_url=api_url)
    return PeopleClient(settings.url, token=for_looking(settings))


def _read(model: type[M], answer: object) -> M:
    return model.model_validate(answer)
