"""`headrace`: the command line."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from headrace.cli.commands import (
    audit,
    connections,
    db,
    dead_letters,
    demo,
    events,
    init,
    keys,
    logs,
    pipeline_dead_letters,
    processes,
    replay,
    runs,
    scopes,
    send,
    status,
    streams,
    table_folders,
    task_runs,
    triggerers,
    triggers,
    variables,
    webhooks,
    worker,
)
from headrace.cli.console import fail
from headrace.errors import HeadraceError, SchemaError, UsageError

app = typer.Typer(
    name="headrace",
    help="Run PySpark pipelines on events: one poll per upstream, every message accounted for, causes before effects.",
    epilog="Start with: [bold]headrace init flights && cd flights && headrace standalone[/bold]",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
init.add_to(app)
processes.add_to(app)
worker.add_to(app)
db.add_to(app)
demo.add_to(app)
status.add_to(app)
events.add_to(app)
triggers.add_to(app)
triggerers.add_to(app)
runs.add_to(app)
task_runs.add_to(app)
scopes.add_to(app)
table_folders.add_to(app)
streams.add_to(app)
logs.add_to(app)
send.add_to(app)
replay.add_to(app)
audit.add_to(app)
dead_letters.add_to(app)
pipeline_dead_letters.add_to(dead_letters.group)
connections.add_to(app)
variables.add_to(app)
webhooks.add_to(app)
keys.add_to(app)


@app.callback()
def _everywhere(debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and log everything.")] = False) -> None:
    if debug:
        os.environ["HEADRACE_DEBUG"] = "true"
        os.environ["HEADRACE_LOG_LEVEL"] = "debug"


def exit_code(error: HeadraceError) -> int:
    """Return the exit code of a command that ended with `error`: 2 where the command, a setting or the version is wrong, else 1."""
    return 2 if isinstance(error, UsageError | SchemaError) else 1


def run() -> None:
    """Run the command line; one clear message instead of a traceback, unless `--debug`."""
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
        sys.stderr.close()  # the reader of our output left, as `head` does: that is no error
        sys.exit(0)
