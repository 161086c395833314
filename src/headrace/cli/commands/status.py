"""`headrace status` and `headrace version`."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Literal

import typer
from pydantic import BaseModel
from rich.markup import escape

import headrace
from headrace.cli.commands.scopes import show_scopes
from headrace.cli.commands.triggers import problem_of
from headrace.cli.console import out
from headrace.cli.credentials import for_looking
from headrace.cli.options import ApiUrl, AsJson
from headrace.cli.rendering import ago, show, show_json
from headrace.client.admin.client import AdminClient
from headrace.errors import ApiError, ApiUnavailable
from headrace.process.alerts import standalone_alerts
from headrace.settings import Settings, read_settings
from headrace.wire.base import API_VERSION
from headrace.wire.status.alerts import Alert
from headrace.wire.status.status import Status

RUNNING = ("running", "silent")
CHECK_SECONDS = 8.0
EXIT_CODES = {"ok": 0, "error": 1, "unknown": 3}
"""Of `headrace status --check`; 2 is wrong usage, as everywhere."""

STATUS_EPILOG = """Exit codes of --check, for cron, systemd and monitoring:

[bold]0[/]  nothing needs you; there may be notes

[bold]1[/]  something is broken: the first lines say what

[bold]2[/]  the command or a setting is wrong

[bold]3[/]  the api cannot be reached or did not answer within 8 seconds

Examples: [bold]headrace status --json | jq .totals[/bold]   [bold]headrace status --check --json || mail -s headrace ops[/bold]"""

Check = Annotated[bool, typer.Option("--check", help="Print only what needs you; the exit code says whether anything is broken.")]


class Checked(BaseModel):
    """What `headrace status --check --json` prints."""

    state: Literal["ok", "error", "unknown"]
    alerts: list[Alert]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    panel = "Inspect and repair"
    app.command("status", rich_help_panel=panel, epilog=STATUS_EPILOG)(status)
    app.command("version", rich_help_panel=panel, epilog="Example: [bold]headrace version[/bold]")(version)


def status(api_url: ApiUrl = None, check: Check = False, json: AsJson = False) -> None:
    """Show what needs you, the totals and how far each scope has come."""
    if check:
        _check(api_url, json)
        return
    settings = read_settings(api_url=api_url)
    with _told_of(settings), AdminClient(settings.url, token=for_looking(settings)) as client:
        now = Status.model_validate(client.status())
    if json:
        show_json(now)
        return
    show_alerts(now.alerts)
    between = "" if out.is_terminal else "\n"
    out.print(end=between)
    show(["what", "#count"], [(name, count) for name, count in now.totals.model_dump().items()], empty="")
    out.print(end=between)
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
        show(["trigger", "state", "!problem"], [(t.name, t.state, problem_of(t)) for t in waiting], empty="")
    out.print(end=between)
    show_scopes(now.scopes, now.now)
    if any(s.waiting for s in now.scopes):
        out.print("Who waits for whom: headrace events waiting. To order a long history at once: headrace replay", markup=False)
    if now.log.since is not None:
        holders = [s.scope for s in now.scopes if s.needs is not None and s.needs <= now.log.since]
        held = f", and is kept from there on for {', '.join(holders)}" if holders else ""
        out.print(f"The log goes back to event {now.log.first:,}, which came {ago(now.log.since)}{held}.", markup=False)


def _check(api_url: str | None, json: bool) -> None:
    """Print the alerts and exit by them."""
    settings = read_settings(api_url=api_url)
    try:
        with AdminClient(settings.url, token=for_looking(settings), timeout=CHECK_SECONDS) as client:
            found = Checked(state="ok", alerts=Status.model_validate(client.status()).alerts)
    except ApiError as error:
        words = f"{error} {error.hint or ''}".strip()
        unreached = Alert(severity="error", about="api", summary=words, section="processes")
        found = Checked(state="unknown", alerts=[unreached, *standalone_alerts(settings.home, time.time())])
    if found.state == "ok" and any(alert.severity == "error" for alert in found.alerts):
        found = found.model_copy(update={"state": "error"})
    if json:
        show_json(found)
    else:
        show_alerts(found.alerts)
    raise typer.Exit(EXIT_CODES[found.state])


@contextmanager
def _told_of(settings: Settings) -> Iterator[None]:
    """Where the api cannot be reached, print first what is known of its home's processes."""
    try:
        yield
    except ApiUnavailable:
        if alerts := standalone_alerts(settings.home, time.time()):
            show_alerts(alerts)
        raise


def show_alerts(alerts: Sequence[Alert]) -> None:
    """Print the alerts, the errors first, in one line each."""
    if not alerts:
        out.print("[bold green]All is well.[/]")
    for alert in alerts:
        colour, word = ("red", "error") if alert.severity == "error" else ("yellow", "note")
        since = "" if alert.since is None else f" (since {ago(alert.since)})"
        out.print(f"[bold {colour}]{word}:[/] {escape(alert.summary)}{since}")


def version() -> None:
    """Show the versions of Headrace, its api and Python."""
    out.print(f"headrace {headrace.__version__}, api {API_VERSION}, Python {platform.python_version()}")
