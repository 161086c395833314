"""`headrace streams adopt`: continue a stream with another event log after the database was replaced."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from headrace.cli.console import out
from headrace.cli.credentials import for_changing
from headrace.cli.groups import INSPECT, command_group, examples
from headrace.cli.options import ApiUrl, Home
from headrace.client.admin.client import AdminClient
from headrace.settings import read_settings
from headrace.wire.calls import admin as calls
from headrace.wire.custody.receipts import LogMark

STREAM_EXAMPLE: Final = "headrace streams adopt 'directory:/data/inbox/*.jsonl' --log 5f0c… --receipts 1204"

Stream = Annotated[str, typer.Argument(help="The stream, from the error message.", metavar="STREAM", show_default=False)]
Receipts = Annotated[int, typer.Option("--receipts", min=0, help="Its number of receipts, from the error message.", metavar="N")]
Log = Annotated[str, typer.Option("--log", help="Id of the event log, from the error message.", metavar="ID")]

streams = command_group("Continue streams with another event log.", STREAM_EXAMPLE)


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    streams.callback()(lambda: None)  # a group with one command needs it
    app.add_typer(streams, name="streams", rich_help_panel=INSPECT)


@streams.command("adopt", epilog=examples(STREAM_EXAMPLE))
def adopt_stream(stream: Stream, log: Log, receipts: Receipts, api_url: ApiUrl = None, home: Home = None) -> None:
    """Accept a stream whose upstream was advanced for another event log, or beyond a restored database.

    No raw event is read again. `headrace audit` names the receipts that a restored database does not have.
    """
    settings = read_settings(api_url=api_url, home=home)
    mark = LogMark(log=log, stream=stream, receipts=receipts)
    with AdminClient(settings.url) as client:
        adopted = client.request(calls.ADOPT_STREAM, mark, credential=for_changing(settings))
    known = f"The event log {log} has the earlier events." if adopted.missing is None else f"Missing: {adopted.missing:,} receipts."
    out.print(f"The stream {stream} continues. {known}", markup=False)
