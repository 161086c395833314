"""`headrace dead-letters pipelines list|show|redrive|discard`: the runs of pipelines that failed for good, and what to do about them."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.commands.dead_letters import ID_HELP, named
from headrace.cli.console import out
from headrace.cli.credentials import for_changing, for_looking
from headrace.cli.options import ApiUrl, AsJson, Home, Limit, is_alone
from headrace.cli.rendering import ago, show, show_json
from headrace.client.admin.client import AdminClient
from headrace.errors import UsageError
from headrace.settings import read_settings
from headrace.wire.custody.pipeline_dead_letters import (
    ActOnPipelineLetters,
    PipelineLetter,
    PipelineLetterAction,
    PipelineLetters,
    PipelineLettersActed,
)

LISTED = 100

group = typer.Typer(
    help="List, redrive or discard the runs of pipelines that failed for good. Without a command: list.",
    epilog="Example: [bold]headrace dead-letters pipelines redrive --pipeline knock_on_delay[/bold]",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
Ids = Annotated[list[str] | None, typer.Argument(help=ID_HELP, metavar="ID")]
ByPipeline = Annotated[str | None, typer.Option("--pipeline", help="All open ones of this pipeline.", show_default=False)]


def add_to(dead_letters: typer.Typer) -> None:
    """Add the group to that of dead letters."""
    dead_letters.add_typer(group, name="pipelines")


@group.callback(invoke_without_command=True)
def of_pipelines(context: typer.Context, api_url: ApiUrl = None, limit: Limit = LISTED, json: AsJson = False) -> None:
    """List, redrive or discard the runs of pipelines that failed for good. Without a command: list."""
    if is_alone(context):
        list_letters(api_url, limit, json)


@group.command("list", epilog="Example: [bold]headrace dead-letters pipelines list --json[/bold]")
def list_letters(api_url: ApiUrl = None, limit: Limit = LISTED, json: AsJson = False) -> None:
    """List the runs that failed for good, the newest first."""
    settings = read_settings(api_url=api_url)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        found = PipelineLetters.model_validate(client.pipeline_dead_letters(limit=limit))
    if json:
        show_json(found)
        return
    show(
        ["id", "state", "pipeline", "#batch", "#events", "!error", "#attempts", "received"],
        [(d.short, d.state, d.pipeline, d.batch, d.events, d.error.split("\n", 1)[0], d.attempts, ago(d.received)) for d in found.letters],
        empty="No dead letters of pipelines: every run succeeded in the end.",
    )


@group.command("show", epilog="Example: [bold]headrace dead-letters pipelines show 2b61c09f[/bold]")
def show_letter(id: Annotated[str, typer.Argument(help=ID_HELP, metavar="ID")], api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show one of them in full: which events it holds, and the whole error of its last attempt."""
    settings = read_settings(api_url=api_url)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        letter = PipelineLetter.model_validate(client.pipeline_letter(named(id)))
    if json:
        show_json(letter)
        return
    seqs = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in letter.seqs)
    facts = letter.model_dump(exclude={"error", "received", "acted", "seqs"}) | {"seqs": seqs, "received": ago(letter.received)}
    show(["what", "~value"], [(name, str(value)) for name, value in facts.items()], empty="")
    out.print(letter.error, markup=False)


@group.command("redrive", epilog="Example: [bold]headrace dead-letters pipelines redrive --pipeline knock_on_delay[/bold]")
def redrive(ids: Ids = None, pipeline: ByPipeline = None, api_url: ApiUrl = None, home: Home = None, json: AsJson = False) -> None:
    """Redrive the events of a dead letter, in a pipeline run of their own."""
    _act("redrive", ids, pipeline, api_url, home, json=json)


@group.command("discard", epilog="Example: [bold]headrace dead-letters pipelines discard ID[/bold]")
def discard(ids: Ids = None, pipeline: ByPipeline = None, api_url: ApiUrl = None, home: Home = None, json: AsJson = False) -> None:
    """Give them up for good."""
    _act("discard", ids, pipeline, api_url, home, json=json)


def _act(action: PipelineLetterAction, ids: list[str] | None, pipeline: str | None, api_url: ApiUrl, home: Home, *, json: bool) -> None:
    if bool(ids) == (pipeline is not None):
        raise UsageError("Name dead letters by their ids, or by --pipeline.", hint="To see what there is: headrace dead-letters pipelines")
    settings = read_settings(api_url=api_url, home=home)
    asked = ActOnPipelineLetters(ids=[named(id) for id in ids or ()], pipeline=pipeline)
    with AdminClient(settings.url, token=for_looking(settings)) as client:
        done = PipelineLettersActed.model_validate(client.act_on_pipeline_dead_letters(action, asked, key=for_changing(settings)))
    if json:
        show_json(done)
        return
    out.print(f"{done.count:,} {'redriven' if action == 'redrive' else 'discarded'}.")
    if done.unknown:
        out.print(f"There is no dead letter of a pipeline with the id {', '.join(done.unknown)}.", markup=False)
        raise typer.Exit(1)
