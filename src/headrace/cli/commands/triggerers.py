"""`headrace triggerers list|drain|stop|resume`: who runs the triggers, and who is to stop."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.console import out
from headrace.cli.credentials import for_changing, for_looking
from headrace.cli.options import ApiUrl, AsJson, Home, is_alone
from headrace.cli.rendering import ago, show, show_json
from headrace.client.admin.client import AdminClient
from headrace.settings import read_settings
from headrace.wire.control.jobs import Wanted
from headrace.wire.status.triggerers import TriggererList, WantJob

group = typer.Typer(
    help="List the triggerers, or say which of them is to drain or to stop. Without a command: list.",
    epilog="Example: [bold]headrace triggerers drain 7[/bold]",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)

Job = Annotated[int, typer.Argument(help="The number of its job, as `headrace triggerers list` shows it.", metavar="JOB")]


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="triggerers", rich_help_panel="Inspect and repair")


@group.callback(invoke_without_command=True)
def triggerers(context: typer.Context, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the triggerers, or say which of them is to drain or to stop. Without a command: list."""
    if is_alone(context):
        list_triggerers(api_url, json)


@group.command("list", epilog="Example: [bold]headrace triggerers list --json[/bold]")
def list_triggerers(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the running triggerers, then the last ended ones."""
    settings = read_settings(api_url=api_url)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        found = TriggererList.model_validate(client.triggerers())
    if json:
        show_json(found)
        return
    show(
        ["job", "state", "wanted", "~host", "pid", "version", "~queues", "#capacity", "#held", "heartbeat"],
        [
            (
                str(j.id),
                j.state,
                j.wanted,
                j.hostname,
                str(j.pid),
                j.version,
                ", ".join(j.queues),
                j.capacity,
                j.held,
                ago(j.last_heartbeat),
            )
            for j in found.triggerers
        ],
        empty="No triggerer has run yet: start one with `headrace triggerer --project project.py`.",
    )


@group.command("drain", epilog="Example: [bold]headrace triggerers drain 7[/bold]")
def drain(job: Job, api_url: ApiUrl = None, home: Home = None) -> None:
    """Drain a triggerer: release its triggers, finish events in flight, and exit."""
    _want(job, "drain", api_url, home)
    out.print(f"Job {job} drains: it gives back all that it holds, and ends.")


@group.command("stop", epilog="Example: [bold]headrace triggerers stop 7[/bold]")
def stop(job: Job, api_url: ApiUrl = None, home: Home = None) -> None:
    """Stop a triggerer at once. Other triggerers take over its triggers."""
    _want(job, "stop", api_url, home)
    out.print(f"Job {job} stops.")


@group.command("resume", epilog="Example: [bold]headrace triggerers resume 7[/bold]")
def resume(job: Job, api_url: ApiUrl = None, home: Home = None) -> None:
    """Resume a triggerer that drains or stops and has not ended yet."""
    _want(job, "run", api_url, home)
    out.print(f"Job {job} runs on.")


def _want(job: int, wanted: Wanted, api_url: str | None, home: Home) -> None:
    settings = read_settings(api_url=api_url, home=home)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        client.want(job, WantJob(wanted=wanted), key=for_changing(settings))
