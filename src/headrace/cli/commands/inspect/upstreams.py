"""`headrace upstreams`: the upstreams of all projects, who reads each, how far, their next messages, and seeks."""

from __future__ import annotations

import getpass
import secrets
import socket
import time
from collections import defaultdict
from datetime import UTC
from typing import Annotated, Final

import typer

from headrace.cli.console import out
from headrace.cli.credentials import admin_client, deployment_key, for_changing
from headrace.cli.groups import INSPECT, examples, list_group
from headrace.cli.log_setup import set_up_logging
from headrace.cli.options import ApiUrl, AsJson, Home, Limit, Project, Yes
from headrace.cli.rendering import Columns, ago, long, number, problem, render
from headrace.client.admin.client import AdminClient
from headrace.core.values.text import cut_text
from headrace.settings import read_settings
from headrace.sources.seeks.target import parse_target
from headrace.wire.base import rfc3339
from headrace.wire.calls import admin as calls
from headrace.wire.custody.seeks import PlannedLane, PlanSeek, SeekList, SeekStatus, StreamSeek
from headrace.wire.status.upstreams import PeekedMessage, SeekPreview, SeekPreviewLane, UpstreamStatus

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

PREVIEW_COLUMNS: Columns = (
    long("lane"),
    "first",
    "end",
    "now",
    "after the seek",
    number("skipped"),
    number("read again"),
)

SEEK_COLUMNS: Columns = (
    "seek",
    long("upstream"),
    "state",
    long("to"),
    number("lanes"),
    number("skipped"),
    number("read again"),
    long("by"),
    "planned",
)

POLL_SECONDS: Final = 0.3
MAX_TARGET_CHARS: Final = 2_000

Name = Annotated[
    str, typer.Argument(help="The upstream, from `headrace upstreams`, or a trigger that reads it.", metavar="NAME", show_default=False)
]
Count = Annotated[int, typer.Option("--count", "-n", min=1, max=MAX_PEEKED, help="Maximum number of messages.", metavar="N")]
Lane = Annotated[
    str | None,
    typer.Option("--lane", help="Only this lane. The part after its last @ may be left out.", metavar="LANE", show_default=False),
]

To = Annotated[
    str,
    typer.Option(
        "--to",
        help="The position: earliest, latest, a time such as 2026-11-24T10:00:00Z, an offset, sequence or entry id, "
        "or LANE=TARGET,LANE=TARGET.",
        metavar="TARGET",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be skipped or read again.")]
Wait = Annotated[float, typer.Option("--wait", min=0, max=3_600, help="Seconds to wait until a triggerer has moved it.", metavar="SECONDS")]

group = list_group("List the upstreams, show their next messages, or move where they are read.", "headrace upstreams")


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
    from headrace.wiring.upstreams import peek_messages  # here, since it imports user code

    settings = read_settings(project=project, api_url=api_url, home=home)
    set_up_logging(settings, quiet=True)
    peeked = peek_messages(settings, lambda: deployment_key(settings), name, PeekRequest(count, lane))
    render(peeked, MESSAGE_COLUMNS, map(_message_row, peeked.messages), json=json, empty="There are no messages that are not advanced.")
    if not json:
        for note in peeked.notes:
            out.print(note, markup=False)


@group.command(
    "seek",
    epilog=examples(
        "headrace upstreams seek orders --to latest --dry-run",
        "headrace upstreams seek orders --to 2026-11-24T10:00:00Z",
        "headrace upstreams seek orders --to orders/0=1200,orders/1=earliest",
    ),
)
def seek(
    name: Name,
    to: To,
    dry_run: DryRun = False,
    wait: Wait = 30.0,
    yes: Yes = False,
    project: Project = None,
    api_url: ApiUrl = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Move the position at which an upstream of the project is read next. For Kafka, NATS and Redis Streams.

    This machine looks the positions up, and plans the seek in the API. The triggerer that opens the stream next carries it out; one that
    reads the stream now opens it again. The plan expires after an hour. headrace audit names the messages that were skipped or read again.
    """
    from headrace.wiring.upstreams import preview  # here, since it imports user code

    target = parse_target(to)
    settings = read_settings(project=project, api_url=api_url, home=home)
    set_up_logging(settings, quiet=True)
    moves = preview(settings, lambda: deployment_key(settings), name, target)
    if dry_run or not json:
        render(moves, PREVIEW_COLUMNS, map(_preview_row, moves.lanes), json=json, empty="The upstream has no lanes now.")
    if dry_run:
        return
    key = for_changing(settings)
    if not moves.skipped and not moves.read_again:
        _print_seeks(SeekList(seeks=[]), json=json, empty="Nothing to move: the lanes are read from there already.")
        return
    question = f"Skip up to {moves.skipped:,} messages of {moves.stream}? No trigger gets them."
    if moves.skipped and not yes and not typer.confirm(question, err=True):
        raise typer.Abort
    with admin_client(settings) as client:
        plan = _plan(moves, to)
        is_read = _is_read(client, {one.stream for one in plan.streams})
        planned = client.request(calls.PLAN_SEEK, plan, credential=key)
        result = _wait(client, plan.plan, planned, wait if is_read else 0)
    _print_seeks(result, json=json, empty="")
    if not json and any(one.state != "done" for one in result.seeks):
        expires = rfc3339(result.seeks[0].expires)
        out.print(f"The next triggerer that opens the stream carries it out, until {expires}. See: headrace upstreams seeks", markup=False)


@group.command("seeks", epilog=examples("headrace upstreams seeks --limit 5"))
def seeks(limit: Limit = 20, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the seeks of all upstreams, the newest first, with the messages skipped or read again, and who planned it."""
    with admin_client(read_settings(api_url=api_url)) as client:
        listed = client.read(calls.LIST_SEEKS, {"limit": limit})
    _print_seeks(listed, json=json, empty="No seek was planned.")


def _plan(moves: SeekPreview, to: str) -> PlanSeek:
    lanes: dict[str, list[PlannedLane]] = defaultdict(list)
    for one in moves.lanes:
        lanes[one.stream].append(PlannedLane(lane=one.lane, position=one.position, forward=one.position >= one.now))
    return PlanSeek(
        plan=secrets.token_hex(8),
        target=cut_text(to, MAX_TARGET_CHARS),
        by=f"{getpass.getuser()}@{socket.gethostname()}"[:200],
        streams=[StreamSeek(stream=stream, lanes=moved) for stream, moved in lanes.items()],
    )


def _is_read(client: AdminClient, streams: set[str]) -> bool:
    """Return whether a triggerer reads one of the streams."""
    return any(one.job_id is not None and one.state != "silent" for one in client.upstreams().upstreams if one.stream in streams)


def _wait(client: AdminClient, plan: str, planned: SeekList, seconds: float) -> SeekList:
    """Return the seeks of a plan once all are done, or after this time."""
    until = time.monotonic() + seconds
    while any(one.state in ("planned", "moving") for one in planned.seeks) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
        planned = client.read(calls.LIST_SEEKS, {"plan": plan, "limit": 1_000})
    return planned


def _print_seeks(listed: SeekList, *, json: bool, empty: str) -> None:
    render(listed, SEEK_COLUMNS, map(_seek_row, listed.seeks), json=json, empty=empty)


def _seek_row(one: SeekStatus) -> tuple[str | int | None, ...]:
    counts = (len(one.lanes), one.skipped, one.read_again)
    return (str(one.id), one.stream, one.state, cut_text(one.target, 60), *counts, one.who, ago(one.planned))


def _preview_row(one: SeekPreviewLane) -> tuple[str | int | None, ...]:
    return (one.lane, *map(str, (one.first, one.end, one.now, one.position)), one.skipped, one.read_again)


def _message_row(one: PeekedMessage) -> tuple[str | int | None, ...]:
    time = None if one.timestamp is None else one.timestamp.astimezone(UTC).isoformat(timespec="milliseconds")
    headers = ", ".join(f"{name}: {value}" for name, value in one.headers.items())
    texts = (cut_text(headers, MAX_VALUE_CHARS), cut_text(one.raw, MAX_VALUE_CHARS), one.malformed or "")
    return (one.lane, _position(one.position), time, one.key, *texts)
