"""`headrace`: the command line."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.commands import db, getting_started, match, processes, replay, secrets, send, tables, tokens, webhooks
from headrace.cli.commands.inspect import (
    adopt,
    audit,
    dead_letters,
    events,
    logs,
    runs,
    scopes,
    status,
    task_runs,
    triggerers,
    triggers,
    upstreams,
)
from headrace.cli.console import err, fail
from headrace.errors import HeadraceError, SchemaError, UsageError
from headrace.process.child import LIFELINE
from headrace.process.garbage import collect_less_often
from headrace.settings import unknown_variables

app = typer.Typer(
    name="headrace",
    help="Run PySpark pipelines on events: one poll per upstream, every message accounted for, causes before effects.",
    epilog="Start with: [bold]headrace init flights && cd flights && headrace standalone[/bold]",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},  # groups and commands inherit it
)
for commands in (
    getting_started,
    processes,
    db,
    status,
    events,
    triggers,
    triggerers,
    upstreams,
    runs,
    task_runs,
    scopes,
    adopt,
    tables,
    logs,
    send,
    match,
    replay,
    audit,
    dead_letters,
    secrets,
    webhooks,
    tokens,
):
    commands.add_to(app)


def _print_version(requested: bool) -> None:
    if requested:
        status.version()
        raise typer.Exit


@app.callback()
def _prepare(
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks and log all levels.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the versions and exit.", callback=_print_version, is_eager=True)] = False,
) -> None:
    del version
    if debug:
        os.environ["HEADRACE_DEBUG"] = "true"
        os.environ["HEADRACE_LOG_LEVEL"] = "debug"
    if LIFELINE not in os.environ:  # a child process has the variables of its parent, which has printed this
        for variable in unknown_variables():
            err.print(f"[yellow]warning:[/] the variable {escape(variable)} is unknown and has no effect.")


def exit_code(error: HeadraceError) -> int:
    """Return the exit code for an error: 2 for a wrong command, setting or version, otherwise 1."""
    return 2 if isinstance(error, UsageError | SchemaError) else 1


def run() -> None:
    """Run the command line. An error is printed as one message, or with `--debug` as a traceback."""
    collect_less_often()
    try:
        app()
    except HeadraceError as error:
        if os.environ.get("HEADRACE_DEBUG", "").lower() in {"1", "true", "yes"}:
            raise
        fail(error)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the output ended, as `head` does
        sys.exit(0)
