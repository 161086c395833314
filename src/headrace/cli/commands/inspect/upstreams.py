"""`headrace upstreams`: the upstreams of all projects, who reads each, how far, and their next messages."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Final

import typer

from headrace.cli.console import out
from headrace.cli.credentials import admin_client, deployment_key
from headrace.cli.groups import INSPECT, examples, list_group
from headrace.cli.log_setup import set_up_logging
from headrace.cli.options import ApiUrl, AsJson, Home, Project
from headrace.cli.rendering import Columns, long, number, problem, render
from headrace.core.values.text import cut_text
from headrace.settings import read_settings
from headrace.wire.status.upstreams import PeekedMessage, UpstreamStatus

MAX_PEEKED: Final = 1_000
MAX_VALUE_CHARS: Final = 1_000
"""Length of a printed value. JSON has all of it."""

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

MESSAGE_COLUMNS: Columns = ("lane", "position", "time", "key", long("headers"), long("value"), problem("malformed"))

Name = Annotated[
    str, typer.Argument(help="The upstream, from `headrace upstreams`, or a trigger that reads it.", metavar="NAME", show_default=False)
]
Count = Annotated[int, typer.Option("--count", "-n", min=1, max=MAX_PEEKED, help="Maximum number of messages.", metavar="N")]
Lane = Annotated[
    str | None,
    typer.Option("--lane", help="Only this lane. The part after its last @ may be left out.", metavar="LANE", show_default=False),
]

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
    return (one.stream, one.kind, reader, max(one.lanes_open, one.lanes_recorded), one.lag, *positions, "; ".join(one.problems))


def _position(position: int | None) -> str | None:
    """Return a position as the upstream writes it: without separators of thousands."""
    return None if position is None else str(position)


@group.command("peek", epilog=examples("headrace upstreams peek orders --count 3", "headrace upstreams peek orders --lane orders/2 --json"))
def peek(
    name: Name,
    count: Count = 10,
    lane: Lane = None,
    project: Project = None,
    api_url: ApiUrl = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Show the next messages of an upstream of the project, as triggers get them. Nothing is acknowledged or moved.

    These are the messages that are not advanced yet, in process or unread. This machine connects to the system itself, with the
    connection of the upstream.
    """
    from headrace.sources.peeks.peek import PeekRequest
    from headrace.wiring.upstream_peek import peek_messages  # here, since it imports user code

    settings = read_settings(project=project, api_url=api_url, home=home)
    set_up_logging(settings, quiet=True)
    peeked = peek_messages(settings, lambda: deployment_key(settings), name, PeekRequest(count, lane))
    render(peeked, MESSAGE_COLUMNS, map(_message_row, peeked.messages), json=json, empty="There are no messages that are not advanced.")
    if not json:
        for note in peeked.notes:
            out.print(note, markup=False)


def _message_row(one: PeekedMessage) -> tuple[str | int | None, ...]:
    time = None if one.timestamp is None else one.timestamp.astimezone(UTC).isoformat(timespec="milliseconds")
    headers = ", ".join(f"{name}: {value}" for name, value in one.headers.items())
    texts = (cut_text(headers, MAX_VALUE_CHARS), cut_text(one.raw, MAX_VALUE_CHARS), one.malformed or "")
    return (one.lane, _position(one.position), time, one.key, *texts)
