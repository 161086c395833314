"""`headrace dead-letters`: events that were given up, by triggers and (`dead-letters pipelines`) by pipelines; redrive and discard them."""

from __future__ import annotations

import getpass
import socket
from typing import Annotated, Final

import typer

from headrace.cli.console import out
from headrace.cli.credentials import admin_client, for_changing
from headrace.cli.groups import INSPECT, examples, list_group
from headrace.cli.options import ApiUrl, AsJson, Home, Limit
from headrace.cli.rendering import Columns, ago, first_line, long, number, print_json, print_table, problem, render, render_facts
from headrace.errors import UsageError
from headrace.settings import read_settings
from headrace.wire.calls import admin as calls
from headrace.wire.custody.dead_letters import (
    MAX_DEAD_LETTERS,
    DeadLetterActionKind,
    DeadLetterSelection,
    DeadLetterState,
)
from headrace.wire.custody.events import DeadLetterKind
from headrace.wire.custody.pipeline_dead_letters import (
    PipelineDeadLetterAction,
    PipelineDeadLetterSelection,
)

DEFAULT_LIMIT: Final = 100
ACTION_CALLS: Final = {"redrive": calls.REDRIVE_DEAD_LETTERS, "discard": calls.DISCARD_DEAD_LETTERS}
DONE: Final = {"redrive": "redriven", "discard": "discarded"}
ID_HELP: Final = "Its id: the short one of the list, the full one, or a unique prefix of at least 4 digits."

Id = Annotated[str, typer.Argument(help=ID_HELP, metavar="ID", show_default=False)]
Ids = Annotated[list[str] | None, typer.Argument(help=ID_HELP, metavar="[ID]...", show_default=False)]
State = Annotated[
    DeadLetterState | None, typer.Option("--state", help="Only dead letters in this state.", metavar="open|redriven|discarded")
]
ByTrigger = Annotated[str | None, typer.Option("--trigger", help="Open dead letters of this trigger.", metavar="NAME")]
ByStream = Annotated[str | None, typer.Option("--stream", help="Open dead letters of this stream.", metavar="STREAM")]
ByKind = Annotated[DeadLetterKind | None, typer.Option("--kind", help="Open dead letters of this kind.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All open dead letters.")]
BatchLimit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=MAX_DEAD_LETTERS, help="Maximum number, the oldest first.", metavar="N")
]
ByPipeline = Annotated[str | None, typer.Option("--pipeline", help="All open dead letters of this pipeline.", metavar="NAME")]

group = list_group("List, show, redrive or discard dead letters.", "headrace dead-letters redrive --trigger legs.united --limit 10")
pipelines = list_group(
    "List, show, redrive or discard the dead letters of pipelines.", "headrace dead-letters pipelines redrive --pipeline knock_on_delay"
)
group.add_typer(pipelines, name="pipelines")


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="dead-letters", rich_help_panel=INSPECT)


@group.command("list", epilog=examples("headrace dead-letters list --state open --json | jq -r .dead_letters[].id"))
def list_dead_letters(api_url: ApiUrl = None, state: State = None, limit: Limit = DEFAULT_LIMIT, json: AsJson = False) -> None:
    """List dead letters, the newest first: their origin, and why they were given up."""
    with admin_client(read_settings(api_url=api_url)) as client:
        page = client.read(calls.LIST_DEAD_LETTERS, {"limit": limit, "state": state})
    empty = f"No dead letter is {state}." if state else "There are no dead letters: no trigger has given up a raw event."
    columns: Columns = ["id", "state", "kind", long("lane"), number("position"), problem("reason"), number("attempts"), "received"]
    rows = [(d.short, d.state, d.kind, d.lane, d.position, d.reason, d.attempts, ago(d.received)) for d in page.dead_letters]
    render(page, columns, rows, json=json, empty=empty)


@group.command("show", epilog=examples("headrace dead-letters show 2b61c09f"))
def show(id: Id, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show one dead letter with the raw event and the traceback of its last attempt."""
    with admin_client(read_settings(api_url=api_url)) as client:
        dead_letter = client.read(calls.GET_DEAD_LETTER, id=checked_id(id))
    facts = dead_letter.model_dump(exclude={"raw", "metadata", "traceback", "received", "triggers"}) | dead_letter.metadata
    facts |= {"triggers": ", ".join(dead_letter.triggers), "received": ago(dead_letter.received)}
    traceback = [line.rstrip("\n") for line in dead_letter.traceback or ()]
    render_facts(dead_letter, facts, json=json, text="\n".join([dead_letter.raw, *traceback]))


def _add_action(action: DeadLetterActionKind, summary: str, example: str) -> None:
    @group.command(action, help=summary, epilog=examples(example))
    def act(
        ids: Ids = None,
        trigger: ByTrigger = None,
        stream: ByStream = None,
        kind: ByKind = None,
        select_all: All = False,
        limit: BatchLimit = MAX_DEAD_LETTERS,
        api_url: ApiUrl = None,
        home: Home = None,
        json: AsJson = False,
    ) -> None:
        selection = _selection(ids, trigger, stream, kind, select_all, limit)
        settings = read_settings(api_url=api_url, home=home)
        with admin_client(settings) as client:
            result = client.request(ACTION_CALLS[action], selection, credential=for_changing(settings))
        if json:
            print_json(result)
            return
        remaining = f", {result.remaining:,} more match: repeat the command" if result.remaining else ""
        out.print(f"{result.count:,} {DONE[action]}{remaining}.")
        if result.skipped:
            print_table([long("skipped"), problem("reason")], [(one.id, one.why) for one in result.skipped])


_add_action(
    "redrive",
    "Redrive dead letters: add their raw events to the backlogs of their triggers. If one fails again, it is open again.",
    "headrace dead-letters redrive --kind failed --limit 10",
)
_add_action(
    "discard",
    "Close dead letters without a retry. They can still be listed, shown, and redriven by their ids.",
    "headrace dead-letters discard --stream directory:old/*.jsonl --kind malformed",
)


@group.command("history", epilog=examples("headrace dead-letters history -n 5"))
def history(api_url: ApiUrl = None, limit: Limit = 20, json: AsJson = False) -> None:
    """List who redrove or discarded dead letters, the newest first."""
    with admin_client(read_settings(api_url=api_url)) as client:
        page = client.read(calls.LIST_DEAD_LETTER_ACTIONS, {"limit": limit})
    rows = [(ago(one.at), one.who, one.action, one.count, one.selection) for one in page.actions]
    columns: Columns = ["when", "who", "action", number("count"), long("selection")]
    render(page, columns, rows, json=json, empty="No dead letter was redriven or discarded.")


@pipelines.command("list", epilog=examples("headrace dead-letters pipelines list --json"))
def list_of_pipelines(api_url: ApiUrl = None, limit: Limit = DEFAULT_LIMIT, json: AsJson = False) -> None:
    """List the dead letters of pipelines, the newest first. Each holds the events of a run that failed permanently."""
    with admin_client(read_settings(api_url=api_url)) as client:
        page = client.read(calls.LIST_PIPELINE_DEAD_LETTERS, {"limit": limit})
    rows = [(d.short, d.state, d.pipeline, d.batch, d.events, first_line(d.error), d.attempts, ago(d.received)) for d in page.dead_letters]
    columns: Columns = ["id", "state", "pipeline", number("batch"), number("events"), problem("error"), number("attempts"), "received"]
    render(page, columns, rows, json=json, empty="There are no dead letters of pipelines: no run has failed permanently.")


@pipelines.command("show", epilog=examples("headrace dead-letters pipelines show 2b61c09f"))
def show_of_pipeline(id: Id, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show one dead letter of a pipeline with its events and the complete error of its last attempt."""
    with admin_client(read_settings(api_url=api_url)) as client:
        dead_letter = client.read(calls.GET_PIPELINE_DEAD_LETTER, id=checked_id(id))
    seqs = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in dead_letter.seqs)
    facts = dead_letter.model_dump(exclude={"error", "received", "acted", "seqs"}) | {"seqs": seqs, "received": ago(dead_letter.received)}
    render_facts(dead_letter, facts, json=json, text=dead_letter.error)


def _add_pipeline_action(action: PipelineDeadLetterAction, summary: str, example: str) -> None:
    @pipelines.command(action, help=summary, epilog=examples(example))
    def act(ids: Ids = None, pipeline: ByPipeline = None, api_url: ApiUrl = None, home: Home = None, json: AsJson = False) -> None:
        if bool(ids) == (pipeline is not None):
            raise UsageError("Name dead letters by their ids, or by --pipeline.", hint="To see them: headrace dead-letters pipelines")
        settings = read_settings(api_url=api_url, home=home)
        selection = PipelineDeadLetterSelection(ids=[checked_id(id) for id in ids or ()], pipeline=pipeline)
        with admin_client(settings) as client:
            result = client.request(calls.ACT_ON_PIPELINE_DEAD_LETTERS, selection, credential=for_changing(settings), action=action)
        if json:
            print_json(result)
            return
        out.print(f"{result.count:,} {DONE[action]}.")
        if result.unknown:
            out.print(f"There is no dead letter of a pipeline with the id {', '.join(result.unknown)}.", markup=False)
            raise typer.Exit(1)


_add_pipeline_action(
    "redrive",
    "Redrive dead letters of pipelines: each becomes a pipeline run of its own.",
    "headrace dead-letters pipelines redrive --pipeline knock_on_delay",
)
_add_pipeline_action("discard", "Close dead letters of pipelines without a retry.", "headrace dead-letters pipelines discard 2b61c09f")


def checked_id(id: str) -> str:
    """Return an id that is not empty. Raises `UsageError` otherwise: a shell's variable can be empty."""
    if not id.strip():
        raise UsageError("An id is empty.", hint="To see the ids: headrace dead-letters list")
    return id


def _selection(
    ids: list[str] | None, trigger: str | None, stream: str | None, kind: DeadLetterKind | None, select_all: bool, limit: int
) -> DeadLetterSelection:
    number_of_ids = len(ids or [])
    if bool(number_of_ids) == (select_all or any(option is not None for option in (trigger, stream, kind))):
        raise UsageError("Name dead letters by their ids, or by a filter.", hint="Filters are --trigger, --stream and --kind, or --all.")
    if number_of_ids > MAX_DEAD_LETTERS:
        raise UsageError(f"More than {MAX_DEAD_LETTERS:,} ids.", hint="Name fewer, or use a filter and repeat.")
    return DeadLetterSelection(
        ids=[checked_id(id) for id in ids or ()],
        trigger=trigger,
        stream=stream,
        kind=kind,
        select_all=select_all,
        limit=limit,
        by=f"{getpass.getuser()}@{socket.gethostname()}"[:200],
    )
