"""`headrace status` and `headrace version`."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Final, Literal

import typer
from pydantic import BaseModel
from rich.markup import escape

import headrace
from headrace.cli.commands.inspect.scopes import print_scopes
from headrace.cli.commands.inspect.triggers import problem_of
from headrace.cli.console import out
from headrace.cli.credentials import admin_client, for_looking
from headrace.cli.groups import INSPECT, examples
from headrace.cli.options import ApiUrl, AsJson
from headrace.cli.rendering import ago, number, print_json, print_table, problem
from headrace.client.admin.client import AdminClient
from headrace.errors import ApiError, ApiUnavailable
from headrace.process.alerts import standalone_alerts
from headrace.settings import Settings, read_settings
from headrace.wire.base import API_VERSION
from headrace.wire.calls import admin as calls
from headrace.wire.status.alerts import Alert

RUNNING: Final = ("running", "silent")
CHECK_TIMEOUT_SECONDS: Final = 8.0
EXIT_CODES: Final = {"ok": 0, "error": 1, "unknown": 3}
"""Of `headrace status --check`. 2 is wrong usage, as in all commands."""

STATUS_EPILOG: Final = f"""Exit codes of --check, for cron, systemd and monitoring:

[bold]0[/]  no errors; there can be warnings

[bold]1[/]  an error: the first lines name it

[bold]2[/]  wrong command or setting

[bold]3[/]  the API server cannot be reached, or did not answer within 8 seconds

{examples("headrace status --json | jq .totals", "headrace status --check --json || mail -s headrace ops")}"""

Check = Annotated[bool, typer.Option("--check", help="Print only errors and warnings. The exit code says whether there is an error.")]


class Checked(BaseModel):
    """What `headrace status --check --json` prints."""

    state: Literal["ok", "error", "unknown"]
    alerts: list[Alert]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("status", rich_help_panel=INSPECT, epilog=STATUS_EPILOG)(status)
    app.command("version", rich_help_panel=INSPECT, epilog=examples("headrace version"))(version)


def status(api_url: ApiUrl = None, check: Check = False, json: AsJson = False) -> None:
    """Show errors and warnings, the totals, the processes, and how far each scope has read."""
    if check:
        _check(api_url, json)
        return
    settings = read_settings(api_url=api_url)
    with _local_alerts(settings), admin_client(settings) as client:
        now = client.read(calls.GET_STATUS)
    if json:
        print_json(now)
        return
    print_alerts(now.alerts)
    between = "" if out.is_terminal else "\n"
    out.print(end=between)
    print_table(["total", number("count")], list(now.totals.model_dump().items()))
    out.print(end=between)
    print_table(
        ["job", "process", "state", "desired state", "host", number("capacity"), number("held"), "heartbeat"],
        [
            (str(j.id), j.kind, j.state, j.desired_state, f"{j.hostname}, {j.pid}", j.capacity, j.held, ago(j.last_heartbeat))
            for j in now.jobs
            if j.state in RUNNING
        ],
        empty="No process is running.",
    )
    if waiting := [t for t in now.triggers if t.unserved or t.blocking or t.state in ("failed", "parked")]:
        print_table(["trigger", "state", problem("problem")], [(t.name, t.state, problem_of(t)) for t in waiting])
    out.print(end=between)
    print_scopes(now.scopes, now.now)
    if any(s.waiting for s in now.scopes):
        out.print("To see what waits: headrace events waiting. To order a long history: headrace replay", markup=False)
    if now.log.since is not None:
        holders = [s.scope for s in now.scopes if s.needs is not None and s.needs <= now.log.since]
        retained = f" and is retained for {', '.join(holders)}" if holders else ""
        out.print(f"The log begins at event {now.log.first:,}, received {ago(now.log.since)}{retained}.", markup=False)


def _check(api_url: str | None, json: bool) -> None:
    """Print the alerts and exit by them."""
    settings = read_settings(api_url=api_url)
    try:
        with AdminClient(settings.url, token=for_looking(settings), timeout=CHECK_TIMEOUT_SECONDS) as client:
            result = Checked(state="ok", alerts=client.read(calls.GET_STATUS).alerts)
    except ApiError as error:
        summary = f"{error} {error.hint or ''}".strip()
        unreached = Alert(severity="error", about="api", summary=summary, section="processes")
        result = Checked(state="unknown", alerts=[unreached, *standalone_alerts(settings.home, time.time())])
    if result.state == "ok" and any(alert.severity == "error" for alert in result.alerts):
        result = result.model_copy(update={"state": "error"})
    if json:
        print_json(result)
    else:
        print_alerts(result.alerts)
    raise typer.Exit(EXIT_CODES[result.state])


@contextmanager
def _local_alerts(settings: Settings) -> Iterator[None]:
    """If the API server cannot be reached, print the alerts of the processes in `home` first."""
    try:
        yield
    except ApiUnavailable:
        if alerts := standalone_alerts(settings.home, time.time()):
            print_alerts(alerts)
        raise


def print_alerts(alerts: Sequence[Alert]) -> None:
    """Print the alerts, the errors first, in one line each."""
    if not alerts:
        out.print("[bold green]All is well.[/]")
    for alert in alerts:
        colour, word = ("red", "error") if alert.severity == "error" else ("yellow", "warning")
        since = "" if alert.since is None else f" (since {ago(alert.since)})"
        out.print(f"[bold {colour}]{word}:[/] {escape(alert.summary)}{since}")


def version() -> None:
    """Show the versions of Headrace, of the execution API and of Python."""
    out.print(f"headrace {headrace.__version__}, API {API_VERSION}, Python {platform.python_version()}")
