"""`headrace dead-letters pipelines`: the runs of pipelines that failed for good, and what to do about them."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.console import out
from headrace.cli.credentials import for_changing, for_looking
from headrace.cli.dead_letters import group
from headrace.cli.options import ApiUrl, AsJson, Home, Limit
from headrace.cli.tables import ago, show, show_json
from headrace.client.people import PeopleClient
from headrace.errors import UsageError
from headrace.settings import read_settings
from headrace.wire.pipeline_letters import ActOnPipelineLetters, PipelineLetterAction, PipelineLetters, PipelineLettersActed

LISTED = 100


@group.command("pipelines", epilog="Example: [bold]headrace dead-letters pipelines --redrive --pipeline knock_on_delay[/bold]")
def of_pipelines(
    ids: Annotated[list[str] | None, typer.Argument(help="The ids, with --redrive or --discard.", metavar="ID")] = None,
    redrive: Annotated[bool, typer.Option("--redrive", help="Let the pipeline take the events once more.")] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Give them up for good.")] = False,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="All open ones of this pipeline.", show_default=False)] = None,
    api_url: ApiUrl = None,
    home: Home = None,
    limit: Limit = LISTED,
    json: AsJson = False,
) -> None:
    """List the runs of pipelines that failed for good, or redrive or discard some: by their ids, or those of a pipeline."""
    settings = read_settings(api_url=api_url, home=home)
    with PeopleClient(settings.url, token=for_looking(settings)) as client:
        if redrive == discard:
            if redrive:
                raise UsageError("Redrive or discard, not both.", hint="Give one of the two.")
            _list(PipelineLetters.model_validate(client.pipeline_letters(limit=limit)), json=json)
            return
        if bool(ids) == (pipeline is not None):
            raise UsageError(
                "Name dead letters by their ids, or by --pipeline.", hint="To see what there is: headrace dead-letters pipelines"
            )
        action: PipelineLetterAction = "redrive" if redrive else "discard"
        asked = ActOnPipelineLetters(ids=ids or [], pipeline=pipeline)
        done = PipelineLettersActed.model_validate(client.act_on_pipeline_letters(action, asked, key=for_changing(settings)))
    if json:
        show_json(done)
        return
    out.print(f"{done.count:,} {'redriven' if redrive else 'discarded'}.")


def _list(found: PipelineLetters, *, json: bool) -> None:
    if json:
        show_json(found)
        return
    show(
        ["state", "pipeline", "#batch", "#events", "!error", "#attempts", "received", "~id"],
        [(d.state, d.pipeline, d.batch, d.events, d.error.split("\n", 1)[0], d.attempts, ago(d.received), d.id) for d in found.letters],
        empty="No dead letters of pipelines: every run succeeded in the end.",
    )
