"""`headrace streams adopt`: let a stream go on with this event log, after its upstream was read for another."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.console import out
from headrace.cli.credentials import for_changing
from headrace.cli.options import ApiUrl, Home
from headrace.client.admin.client import AdminClient
from headrace.settings import read_settings
from headrace.wire.custody.receipts import LogMark, StreamAdopted

EXAMPLE = "Example: [bold]headrace streams adopt 'directory:/data/inbox/*.jsonl' --log 5f0c… --receipts 1204[/bold]"

group = typer.Typer(
    help="Decide what event log streams go on with.",
    epilog=EXAMPLE,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="streams", rich_help_panel="Inspect and repair")


@group.callback()
def streams() -> None:
    """Decide what event log streams go on with."""


@group.command("adopt", epilog=EXAMPLE)
def adopt(
    stream: Annotated[str, typer.Argument(help="The stream, as its error names it.", metavar="STREAM", show_default=False)],
    log: Annotated[str, typer.Option("--log", help="The event log that its upstream was read for.", show_default=False)],
    receipts: Annotated[int, typer.Option("--receipts", min=0, help="How many receipts that had, by the error.", show_default=False)],
    api_url: ApiUrl = None,
    home: Home = None,
) -> None:
    """Accept a stream whose upstream was advanced for another event log, or past what a restored database has.

    Nothing of the upstream is read again. What a restored database does not have is named by `headrace audit` from then on.
    """
    settings = read_settings(api_url=api_url, home=home)
    mark = LogMark(log=log, stream=stream, receipts=receipts)
    with AdminClient(settings.url) as client:
        done = StreamAdopted.model_validate(client.adopt_stream(mark, key=for_changing(settings)))
    lost = f"The event log {log} has what was read before." if done.missing is None else f"Missing: {done.missing:,} receipts."
    out.print(f"The stream {stream} goes on. {lost}", markup=False)
