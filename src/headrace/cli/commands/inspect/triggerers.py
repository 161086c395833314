"""`headrace triggerers`: list them, and drain, stop or resume one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from headrace.cli.console import out
from headrace.cli.credentials import admin_client, for_changing
from headrace.cli.groups import INSPECT, examples, list_group
from headrace.cli.options import ApiUrl, AsJson, Home
from headrace.cli.rendering import Cell, Columns, ago, long, number, render
from headrace.settings import read_settings
from headrace.wire.calls import admin as calls
from headrace.wire.control.jobs import DesiredState
from headrace.wire.status.status import JobStatus
from headrace.wire.status.triggerers import SetDesiredState

EMPTY: Final = "There are no triggerers. Start one with `headrace triggerer --project project.py`."

group = list_group("List the triggerers, or drain, stop or resume one.", "headrace triggerers drain 7")

Job = Annotated[int, typer.Argument(help="The id of its job, from `headrace triggerers`.", metavar="JOB", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="triggerers", rich_help_panel=INSPECT)


@group.command("list", epilog=examples("headrace triggerers list --json"))
def list_triggerers(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the running triggerers, then the last ended ones."""
    with admin_client(read_settings(api_url=api_url)) as client:
        page = client.read(calls.LIST_TRIGGERERS)
    counts = map(number, ("capacity", "held"))
    columns: Columns = ["job", "state", "desired state", long("host"), "pid", "version", long("queues"), *counts, "heartbeat"]
    render(page, columns, map(_row, page.triggerers), json=json, empty=EMPTY)


def _row(job: JobStatus) -> Sequence[Cell]:
    texts = (str(job.id), job.state, job.desired_state, job.hostname, str(job.pid), job.version, ", ".join(job.queues))
    return (*texts, job.capacity, job.held, ago(job.last_heartbeat))


@group.command("drain", epilog=examples("headrace triggerers drain 7"))
def drain(job: Job, api_url: ApiUrl = None, home: Home = None) -> None:
    """Drain a triggerer: release its triggers, finish events in flight, and exit."""
    _set_state(job, "drain", api_url, home)
    out.print(f"Job {job} drains: it releases its triggers and exits.")


@group.command("stop", epilog=examples("headrace triggerers stop 7"))
def stop(job: Job, api_url: ApiUrl = None, home: Home = None) -> None:
    """Stop a triggerer at once. Other triggerers take over its triggers."""
    _set_state(job, "stop", api_url, home)
    out.print(f"Job {job} stops.")


@group.command("resume", epilog=examples("headrace triggerers resume 7"))
def resume(job: Job, api_url: ApiUrl = None, home: Home = None) -> None:
    """Resume a triggerer that drains or stops and has not exited yet."""
    _set_state(job, "run", api_url, home)
    out.print(f"Job {job} continues.")


def _set_state(job: int, state: DesiredState, api_url: str | None, home: Home) -> None:
    settings = read_settings(api_url=api_url, home=home)
    with admin_client(settings) as client:
        client.request(calls.SET_DESIRED_STATE, SetDesiredState(desired_state=state), credential=for_changing(settings), job_id=job)
