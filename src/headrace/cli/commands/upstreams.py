"""`headrace upstreams`: the upstreams of all projects, who reads each, how far, and their next messages."""

from __future__ import annotations

import typer

from headrace.cli.credentials import admin_client
from headrace.cli.groups import INSPECT, examples, list_group
from headrace.cli.options import ApiUrl, AsJson
from headrace.cli.rendering import Columns, long, number, problem, render
from headrace.settings import read_settings
from headrace.wire.status.upstreams import UpstreamStatus

COLUMNS: Columns = (
    long("upstream"),
    "kind",
    long("read by"),
    number("lanes"),
    number("lag"),
    long("lane furthest behind"),
    "stored",
    "advanced",
    problem("problem"),
)

group = list_group("List the upstreams, or show their next messages.", "headrace upstreams")


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="upstreams", rich_help_panel=INSPECT)


@group.command("list", epilog=examples("headrace upstreams list --json | jq '.upstreams[] | {stream, lag}'"))
def list_upstreams(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the upstreams of all projects: which triggerer reads each, its last positions, and its lag.

    The lag counts the messages that are not advanced yet, as the triggerer reported it last. A dash means that it is not known.
    """
    with admin_client(read_settings(api_url=api_url)) as client:
        page = client.upstreams()
    empty = "No project declares an upstream. Declare watches in a project, and start it: headrace triggerer --project project.py"
    render(page, COLUMNS, map(_row, page.upstreams), json=json, empty=empty)


def _row(one: UpstreamStatus) -> tuple[str | int | None, ...]:
    reader = one.unread_because if one.job_id is None else f"triggerer {one.job_id}, {one.state}"
    lane = one.lanes[0] if one.lanes else None
    positions = (None, None, None) if lane is None else (lane.lane, _position(lane.stored), _position(lane.advanced))
    return (one.stream, one.kind, reader, one.lanes_open, one.lag, *positions, "; ".join(one.problems))


def _position(position: int | None) -> str | None:
    """Return a position as the upstream writes it: without separators of thousands."""
    return None if position is None else str(position)
