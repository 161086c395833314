"""`headrace dead-letters list|show|redrive|discard|history`: what was given up on, and what to do about it."""

from __future__ import annotations

import getpass
import socket
from typing import Annotated

import typer

from headrace.cli.console import out
from headrace.cli.credentials import for_changing, for_looking
from headrace.cli.options import ApiUrl, AsJson, Home, Limit, is_alone
from headrace.cli.rendering import ago, show, show_json
from headrace.client.admin.client import AdminClient
from headrace.errors import UsageError
from headrace.settings import Settings, read_settings
from headrace.wire.custody.dead_letters import (
    MOST_AT_ONCE,
    ActOnDeadLetters,
    DeadLetterActionKind,
    DeadLetterActions,
    DeadLettersActed,
    DeadLetterState,
)
from headrace.wire.custody.events import DeadLetterKind
from headrace.wire.status.status import DeadLetterDetail, DeadLetterPage

LISTED = 100

group = typer.Typer(
    help="List, look at, redrive or discard what was given up on. Without a command: list.",
    epilog="Example: [bold]headrace dead-letters redrive --trigger legs.united --limit 10[/bold]",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)

State = Annotated[
    DeadLetterState | None,
    typer.Option("--state", help="Only dead letters in this state: open, redriven or discarded.", show_default=False),
]
ID_HELP = "The id, the short one of the list or its beginning (at least 4 digits), or the full one."
Ids = Annotated[list[str] | None, typer.Argument(help=ID_HELP, metavar="ID")]
ByTrigger = Annotated[str | None, typer.Option("--trigger", help="Open ones of this trigger.", show_default=False)]
ByStream = Annotated[str | None, typer.Option("--stream", help="Open ones of this stream.", show_default=False)]
ByKind = Annotated[DeadLetterKind | None, typer.Option("--kind", help="Open ones of this kind.", show_default=False)]
Every = Annotated[bool, typer.Option("--all", help="All open ones.")]
AtMost = Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST_AT_ONCE, help="At most this many, the oldest.")]


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="dead-letters", rich_help_panel="Inspect and repair")


@group.callback(invoke_without_command=True)
def dead_letters(context: typer.Context, api_url: ApiUrl = None, state: State = None, limit: Limit = LISTED, json: AsJson = False) -> None:
    """List, look at, redrive or discard what was given up on. Without a command: list."""
    if is_alone(context):
        list_letters(api_url, state, limit, json)


@group.command("list", epilog="Example: [bold]headrace dead-letters list --state open --json | jq -r .dead_letters[].id[/bold]")
def list_letters(api_url: ApiUrl = None, state: State = None, limit: Limit = LISTED, json: AsJson = False) -> None:
    """List what was given up on, the newest first: where it came from, and why."""
    with _client(read_settings(api_url=api_url)) as client:
        found = DeadLetterPage.model_validate(client.dead_letters(limit=limit, state=state))
    if json:
        show_json(found)
        return
    show(
        ["id", "state", "kind", "~lane", "#position", "!reason", "#attempts", "received"],
        [(d.short, d.state, d.kind, d.lane, d.position, d.reason, d.attempts, ago(d.received)) for d in found.dead_letters],
        empty=f"No dead letter is {state}." if state else "No dead letters: everything read so far became an event or was not wanted.",
    )


@group.command("show", epilog="Example: [bold]headrace dead-letters show 2b61c09f[/bold]")
def show_letter(id: Annotated[str, typer.Argument(help=ID_HELP, metavar="ID")], api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show one dead letter in full: the text that came, and the traceback of its last attempt."""
    with _client(read_settings(api_url=api_url)) as client:
        letter = DeadLetterDetail.model_validate(client.dead_letter(named(id)))
    if json:
        show_json(letter)
        return
    facts = letter.model_dump(exclude={"raw", "traceback", "received", "triggers"})
    facts |= {"triggers": ", ".join(letter.triggers), "received": ago(letter.received)}
    show(["what", "~value"], [(name, None if value is None else str(value)) for name, value in facts.items()], empty="")
    out.print(letter.raw, markup=False)
    if letter.traceback:
        out.print("\n".join(line.rstrip("\n") for line in letter.traceback), markup=False)


@group.command("redrive", epilog="Example: [bold]headrace dead-letters redrive --kind failed --limit 10[/bold]")
def redrive(
    ids: Ids = None,
    trigger: ByTrigger = None,
    stream: ByStream = None,
    kind: ByKind = None,
    every: Every = False,
    limit: AtMost = MOST_AT_ONCE,
    api_url: ApiUrl = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Redrive dead letters: their raw text goes into the backlogs of their triggers. A dead letter that fails again is open again."""
    asked = _asked(ids, trigger, stream, kind, every, limit)
    _act("redrive", asked, read_settings(api_url=api_url, home=home), json=json)


@group.command("discard", epilog="Example: [bold]headrace dead-letters discard --stream directory:old/*.jsonl --kind malformed[/bold]")
def discard(
    ids: Ids = None,
    trigger: ByTrigger = None,
    stream: ByStream = None,
    kind: ByKind = None,
    every: Every = False,
    limit: AtMost = MOST_AT_ONCE,
    api_url: ApiUrl = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Give them up for good. They can still be listed and shown, and be redriven by their ids."""
    asked = _asked(ids, trigger, stream, kind, every, limit)
    _act("discard", asked, read_settings(api_url=api_url, home=home), json=json)


@group.command("history", epilog="Example: [bold]headrace dead-letters history -n 5[/bold]")
def history(api_url: ApiUrl = None, limit: Limit = 20, json: AsJson = False) -> None:
    """List who redrove or discarded what, and when, the newest first."""
    with _client(read_settings(api_url=api_url)) as client:
        done = DeadLetterActions.model_validate(client.dead_letter_actions(limit=limit))
    if json:
        show_json(done)
        return
    show(
        ["when", "who", "action", "#count", "~asked"],
        [(ago(one.at), one.who, one.action, one.count, one.asked) for one in done.actions],
        empty="Nothing was redriven or discarded yet.",
    )


def _asked(
    ids: list[str] | None, trigger: str | None, stream: str | None, kind: DeadLetterKind | None, every: bool, limit: int
) -> ActOnDeadLetters:
    count = len(ids or [])
    if bool(count) == (every or any(given is not None for given in (trigger, stream, kind))):
        raise UsageError("Name dead letters by their ids, or by a filter.", hint="Filters are --trigger, --stream and --kind, or --all.")
    if count > MOST_AT_ONCE:
        raise UsageError(f"At most {MOST_AT_ONCE:,} dead letters at once.", hint="Name fewer, or use a filter and repeat.")
    by = f"{getpass.getuser()}@{socket.gethostname()}"[:200]
    return ActOnDeadLetters(ids=[named(id) for id in ids or ()], trigger=trigger, stream=stream, kind=kind, every=every, limit=limit, by=by)


def named(id: str) -> str:
    """Return an id as it was typed. Raises `UsageError` where nothing was: a shell's variable may be empty."""
    if not id.strip():
        raise UsageError("An id is empty.", hint="To see the ids: headrace dead-letters list")
    return id


def _act(action: DeadLetterActionKind, asked: ActOnDeadLetters, settings: Settings, *, json: bool) -> None:
    with _client(settings) as client:
        done = DeadLettersActed.model_validate(client.act(action, asked, key=for_changing(settings)))
    if json:
        show_json(done)
        return
    what = {"redrive": "redriven", "discard": "discarded"}[action]
    more = f", {done.remaining:,} more fit: ask again" if done.remaining else ""
    out.print(f"{done.count:,} {what}{more}.")
    if done.skipped:
        show(["~left as it is", "!why"], [(one.id, one.why) for one in done.skipped], empty="")


def _client(settings: Settings) -> AdminClient:
    return AdminClient(settings.url, token=for_looking(settings))
