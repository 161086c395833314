"""`headrace runs`: pipeline runs."""

from __future__ import annotations

import typer

from headrace.cli.credentials import admin_client
from headrace.cli.options import ApiUrl, AsJson, Limit
from headrace.cli.rendering import ago, show, show_json
from headrace.wire.status.status import RunList


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("runs", rich_help_panel="Inspect and repair", epilog="Example: [bold]headrace runs -n 50 --json[/bold]")(runs)


def runs(api_url: ApiUrl = None, limit: Limit = 20, json: AsJson = False) -> None:
    """List the newest pipeline runs."""
    with admin_client(api_url) as client:
        found = RunList.model_validate(client.runs(limit=limit))
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
        for r in found.runs
    ]
    show(
        ["pipeline", "state", "#batch", "#attempt", "#events", "#rows", "#took", "started", "!error"],
        rows,
        empty="No pipeline run yet. A pipeline runs when events for it are in order. Events that wait: headrace events waiting",
    )
