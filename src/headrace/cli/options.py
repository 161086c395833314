"""The options that several commands share; a flag that was not given is None, so that file and environment show through."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from headrace.errors import UsageError

Home = Annotated[
    Path | None,
    typer.Option("--home", help="Folder for the database, logs and tables; scratch for Spark.", show_default=False, metavar="DIR"),
]
Tables = Annotated[
    Path | None, typer.Option("--tables", help="Folder of the tables. [default: in --home]", show_default=False, metavar="DIR")
]
Project = Annotated[
    Path | None, typer.Option("--project", "-p", help="The project file. [default: project.py]", show_default=False, metavar="FILE")
]
Host = Annotated[str | None, typer.Option("--host", help="Address the api listens on. [default: 127.0.0.1]", show_default=False)]
Port = Annotated[int | None, typer.Option("--port", help="Port the api listens on; 0: any free one. [default: 8642]", show_default=False)]
ApiUrl = Annotated[str | None, typer.Option("--api-url", help="Where the api is. [default: http://127.0.0.1:8642]", show_default=False)]
Database = Annotated[
    str | None,
    typer.Option("--database-url", help="Where the api keeps everything. [default: a SQLite file in --home]", show_default=False),
]
Master = Annotated[
    str | None, typer.Option("--master", help="Spark master, as spark-submit takes it. [default: local[*]]", show_default=False)
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", help="Configure Spark, as spark-submit does; may be given often.", show_default=False, metavar="KEY=VALUE"),
]
Capacity = Annotated[
    int | None, typer.Option("--capacity", min=1, help="How many triggers to take. [default: 20000]", show_default=False, metavar="N")
]
Queues = Annotated[
    str | None, typer.Option("--queues", help="Whose triggers to take, by commas. [default: default]", show_default=False, metavar="NAMES")
]
Lookback = Annotated[
    float | None,
    typer.Option("--lookback", help="Seconds an event waits for the one it follows. [default: 900]", show_default=False, metavar="SECONDS"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most this many, the newest.")]


def spark_conf(given: list[str] | None) -> dict[str, str] | None:
    """Return what `--conf` was given as settings; None where it was not.

    Raises:
        UsageError: One is not KEY=VALUE.
    """
    for text in given or ():
        if not re.match(r"spark\.[^=\s]+=", text):
            raise UsageError(
                f"--conf takes KEY=VALUE with a key of Spark's, not {text!r}.", hint="For example: --conf spark.executor.memory=4g"
            )
    return dict(text.split("=", 1) for text in given) if given else None


def first_event(text: str) -> int | None:
    """Return the seq that `--from` was given; None for 'now'.

    Raises:
        UsageError: It is neither.
    """
    if text == "now":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--from takes the seq of an event or 'now', not {text!r}.", hint="To begin with the first event: --from 1")
    return int(text)


def is_alone(context: typer.Context) -> bool:
    """Whether a group of commands was called without one of them.

    Raises:
        UsageError: It was called with one, and has options before it, which would be lost.
    """
    if context.invoked_subcommand is None:
        return True
    sources = (context.get_parameter_source(name) for name in context.params)
    if any(source is not None and source.name == "COMMANDLINE" for source in sources):
        where = f"{context.command_path} {context.invoked_subcommand}"
        raise UsageError("Options belong behind the command.", hint=f"See: {where} --help")
    return False
