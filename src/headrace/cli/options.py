"""Options of several commands. An unset flag has the value None, so that `headrace.toml` and the environment apply."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from headrace.errors import UsageError
from headrace.settings import Settings, default_of


def setting(name: str, *flags: str, metavar: str | None = None, **bounds: Any) -> Any:
    """Return the option for a setting. Its help is the description of the setting, with the default."""
    help = f"{Settings.model_fields[name].description}. [default: {default_of(name).replace('`', '')}]"
    return typer.Option(*(flags or (f"--{name.replace('_', '-')}",)), help=escape(help), show_default=False, metavar=metavar, **bounds)


Home = Annotated[Path | None, setting("home", metavar="DIR")]
Tables = Annotated[str | None, setting("tables", metavar="DIR|URL")]
Project = Annotated[Path | None, setting("project", "--project", "-p", metavar="FILE")]
Host = Annotated[str | None, setting("host", metavar="ADDRESS")]
Port = Annotated[int | None, setting("port", metavar="PORT")]
ReceiverHost = Annotated[str | None, setting("receiver_host", "--host", metavar="ADDRESS")]
ReceiverPort = Annotated[int | None, setting("receiver_port", "--port", metavar="PORT")]
ApiUrl = Annotated[str | None, setting("api_url", metavar="URL")]
Database = Annotated[str | None, setting("database_url", metavar="URL")]
Master = Annotated[str | None, setting("master", metavar="URL")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", help="Spark property, as for spark-submit. Can be repeated.", show_default=False, metavar="KEY=VALUE"),
]
MaxTriggers = Annotated[int | None, setting("max_triggers", min=1, metavar="N")]
Queues = Annotated[str | None, setting("queues", metavar="NAMES")]
Lookback = Annotated[float | None, setting("lookback", metavar="SECONDS")]
Concurrency = Annotated[int | None, setting("worker_concurrency", "--concurrency", min=1, metavar="N")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of entries, the newest first.", metavar="N")]
Match = Annotated[
    str | None,
    typer.Option(
        "--match",
        help="Only events whose payload matches this pattern, as in match= of a watch: JSON, or @FILE.",
        metavar="PATTERN",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def spark_conf(options: list[str] | None) -> dict[str, str] | None:
    """Return the values of `--conf` as settings, or None if there are none.

    Raises:
        UsageError: A value is not KEY=VALUE.
    """
    for text in options or ():
        if not re.match(r"spark\.[^=\s]+=", text):
            raise UsageError(
                f"Invalid --conf {text!r}: it must be KEY=VALUE with a Spark property.", hint="For example: --conf spark.executor.memory=4g"
            )
    return dict(text.split("=", 1) for text in options) if options else None


def first_event(text: str) -> int | None:
    """Return the seq in the value of `--from`, or None for `now`.

    Raises:
        UsageError: The value is neither.
    """
    if text == "now":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"Invalid --from {text!r}: it must be the seq of an event or 'now'.", hint="To start at the first event: --from 1")
    return int(text)
