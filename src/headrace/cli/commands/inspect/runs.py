"""`headrace runs`: pipeline runs."""

from __future__ import annotations

from datetime import datetime

import typer

from headrace.cli.credentials import admin_client
from headrace.cli.groups import INSPECT, examples
from headrace.cli.options import ApiUrl, AsJson, Limit
from headrace.cli.rendering import ago, first_line, number, problem, render
from headrace.settings import read_settings
from headrace.wire.calls import admin as calls


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("runs", rich_help_panel=INSPECT, epilog=examples("headrace runs -n 50 --json"))(runs)


def runs(api_url: ApiUrl = None, limit: Limit = 20, json: AsJson = False) -> None:
    """List the newest pipeline runs."""
    with admin_client(read_settings(api_url=api_url)) as client:
        page = client.read(calls.LIST_RUNS, {"limit": limit})
    rows = [
        (r.pipeline, r.state, r.batch, r.attempt, r.events, r.rows, _seconds(r.started, r.finished), ago(r.started), first_line(r.error))
        for r in page.runs
    ]
    counts = map(number, ("batch", "attempt", "events", "rows", "took"))
    empty = "There are no pipeline runs. A pipeline runs when its events are in order. For waiting events: headrace events waiting"
    render(page, ["pipeline", "state", *counts, "started", problem("error")], rows, json=json, empty=empty)


def _seconds(started: datetime, finished: datetime | None) -> str | None:
    return None if finished is None else f"{(finished - started).total_seconds():.2f} s"
