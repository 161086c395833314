"""`headrace worker`: the process that runs tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.log_setup import set_up_logging
from headrace.cli.options import ApiUrl, Conf, Home, Master, Project, spark_conf
from headrace.logs.context import run_target
from headrace.process.lifeline import hold_lifeline
from headrace.settings import read_settings

Slots = Annotated[int | None, typer.Option("--slots", min=1, help="How many runs at a time. [default: 4]", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    example = "Example: [bold]headrace worker --project project.py --slots 2[/bold]"
    app.command("worker", rich_help_panel="Processes", epilog=example)(worker)


def worker(
    project: Project = None, home: Home = None, api_url: ApiUrl = None, master: Master = None, conf: Conf = None, slots: Slots = None
) -> None:
    """Run the tasks of a project; Spark is started when a task first asks for it."""
    from headrace.wiring.worker import run_worker

    settings = read_settings(
        project=project, home=home, api_url=api_url, master=master, spark_conf=spark_conf(conf), task_slots=slots
    ).with_key()
    set_up_logging(settings, targets=[run_target])
    hold_lifeline()
    run_worker(settings)
