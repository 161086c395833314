"""`headrace standalone`, `api`, `triggerer`, `pipeline`, `worker`: the processes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer
from rich.markup import escape

from headrace.cli.console import err, out
from headrace.cli.log_setup import set_up_logging
from headrace.cli.options import (
    ApiUrl,
    Concurrency,
    Conf,
    Database,
    Home,
    Host,
    Lookback,
    Master,
    MaxTriggers,
    Port,
    Project,
    Queues,
    ReceiverHost,
    ReceiverPort,
    Tables,
    first_event,
    spark_conf,
)
from headrace.logs.context import run_target
from headrace.process.lifeline import hold_lifeline
from headrace.process.local_deployment import LocalDeployment
from headrace.process.signals import wait_for_shutdown
from headrace.settings import Settings, read_settings
from headrace.triggerer.trigger_log import trigger_target

PIPELINE_EPILOG: Final = """Examples:

[bold]headrace pipeline --project project.py --master 'local\\[4]'[/bold]   four tasks at a time, in this process

[bold]headrace pipeline --master spark://spark.example:7077 --conf spark.executor.memory=4g --conf spark.cores.max=16[/bold]

[bold]headrace pipeline --master yarn --conf spark.executor.instances=4[/bold]   needs HADOOP_CONF_DIR

The executors get this package and the modules beside the project file; docs/guides/clusters.md says what else they need."""


RECEIVE_EPILOG: Final = """Examples:

[bold]headrace receive --project project.py[/bold]   POST http://127.0.0.1:8643/hooks/NAME for each Http upstream

[bold]headrace receive --project project.py --host 0.0.0.0 --port 8080[/bold]   behind a proxy with TLS

[bold]curl -d '{"id": 1}' -H 'Content-Type: application/json' -H 'Authorization: Bearer TOKEN' http://127.0.0.1:8643/hooks/orders[/bold]

The guide docs/guides/http.md has the schemes of senders, limits and statuses."""

Migrate = Annotated[bool, typer.Option("--migrate", help="Upgrade an older database to the schema of this version first.")]
DiscardSecrets = Annotated[
    bool, typer.Option("--discard-secrets", help="Start without the lost encryption key. Secrets under that key become unreadable.")
]
From = Annotated[str, typer.Option("--from", help="First event of a new scope: its seq, or 'now'.", metavar="SEQ|now")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    panel = "Processes"
    app.command("standalone", rich_help_panel=panel, epilog="Example: [bold]headrace standalone --project project.py[/bold]")(standalone)
    app.command("api", rich_help_panel=panel, epilog="Example: [bold]headrace api --home /var/lib/headrace --port 8642[/bold]")(api)
    app.command(
        "triggerer",
        rich_help_panel=panel,
        epilog="Example: [bold]headrace triggerer --project project.py --api-url http://127.0.0.1:8642[/bold]",
    )(triggerer)
    app.command("pipeline", rich_help_panel=panel, epilog=PIPELINE_EPILOG)(pipeline)
    app.command("worker", rich_help_panel=panel, epilog="Example: [bold]headrace worker --project project.py --concurrency 2[/bold]")(
        worker
    )
    app.command("receive", rich_help_panel=panel, epilog=RECEIVE_EPILOG)(receive)
    app.command("runner", hidden=True)(runner)
    app.command("trigger-process", hidden=True)(trigger_process)


def standalone(
    project: Project = None,
    home: Home = None,
    host: Host = None,
    port: Port = None,
    database_url: Database = None,
    master: Master = None,
    conf: Conf = None,
    lookback: Lookback = None,
) -> None:
    """Run API server, triggerer and pipeline on this machine, and restart each when it ends.

    A worker runs too if the project has tasks. Ctrl-C stops all processes. The same command continues from there.
    """
    settings = read_settings(
        project=project,
        home=home,
        host=host,
        port=port,
        database_url=database_url,
        master=master,
        spark_conf=spark_conf(conf),
        lookback=lookback,
    ).with_key()
    set_up_logging(settings, quiet=True)
    hold_lifeline()
    asyncio.run(_standalone(settings))


async def _standalone(settings: Settings) -> None:
    from headrace.wiring.project import read_project  # here, since it imports user code

    project = read_project(settings)
    name = project.name
    async with LocalDeployment(settings, notice=lambda text: err.print(f"[yellow]![/] {escape(text)}")) as stack:
        out.print(f"Project [bold]{escape(name)}[/]: starting api, triggerer and pipeline …")
        await stack.start(*([stack.worker()] if project.tasks else []))
        out.print(f"[bold green]✓[/] running. Status page: [link]{stack.url}[/link]   logs: {escape(str(stack.logs))}   Ctrl-C stops.")
        await wait_for_shutdown(stack.failed)
        out.print("Stopping: events in flight are stored first …")
    out.print("Stopped. Nothing is lost: the same command goes on from here.")


def api(
    home: Home = None,
    host: Host = None,
    port: Port = None,
    database_url: Database = None,
    migrate: Migrate = False,
    discard_secrets: DiscardSecrets = False,
) -> None:
    """Run the API server. Only this process accesses the database."""
    from headrace.wiring.api import serve_api

    settings = read_settings(home=home, host=host, port=port, database_url=database_url).with_key()
    set_up_logging(settings)
    hold_lifeline()
    serve_api(settings, migrate=migrate, discard_secrets=discard_secrets)


def triggerer(
    project: Project = None, home: Home = None, api_url: ApiUrl = None, max_triggers: MaxTriggers = None, queues: Queues = None
) -> None:
    """Run the triggers of a project."""
    import uvloop

    from headrace.wiring.triggerer import run_triggerer

    settings = read_settings(project=project, home=home, api_url=api_url, max_triggers=max_triggers, queues=queues).with_key()
    set_up_logging(settings, targets=[trigger_target])
    hold_lifeline()
    uvloop.run(run_triggerer(settings))


def runner() -> None:
    """Run the streams and watches of a triggerer (started by the triggerer)."""
    from headrace.wiring.runner import start_runner

    settings = read_settings()
    set_up_logging(settings, targets=[trigger_target])
    start_runner(settings)


def trigger_process() -> None:
    """Run the users' code of the triggers (started by the runner)."""
    from headrace.wiring.runner import start_trigger_process

    settings = read_settings()
    set_up_logging(settings, targets=[trigger_target])
    start_trigger_process(settings)


def pipeline(
    project: Project = None,
    home: Home = None,
    api_url: ApiUrl = None,
    master: Master = None,
    conf: Conf = None,
    lookback: Lookback = None,
    tables: Tables = None,
    first: From = "1",
) -> None:
    """Run the pipelines of a project: the Spark driver."""
    from headrace.wiring.pipeline import run_pipelines

    settings = read_settings(
        project=project, home=home, api_url=api_url, master=master, spark_conf=spark_conf(conf), lookback=lookback, tables=tables
    ).with_key()
    set_up_logging(settings, targets=[run_target])
    hold_lifeline()
    run_pipelines(settings, begin=first_event(first))


def worker(
    project: Project = None,
    home: Home = None,
    api_url: ApiUrl = None,
    master: Master = None,
    conf: Conf = None,
    concurrency: Concurrency = None,
) -> None:
    """Run the tasks of a project. Spark starts when a task first uses it."""
    from headrace.wiring.worker import run_worker

    settings = read_settings(
        project=project, home=home, api_url=api_url, master=master, spark_conf=spark_conf(conf), worker_concurrency=concurrency
    ).with_key()
    set_up_logging(settings, targets=[run_target])
    hold_lifeline()
    run_worker(settings)


def receive(
    project: Project = None, home: Home = None, host: ReceiverHost = None, port: ReceiverPort = None, api_url: ApiUrl = None
) -> None:
    """Accept requests over HTTP for the Http upstreams of a project.

    A request is answered with 202 once its messages are on the disk. It is accepted without the API server too.
    """
    import uvloop

    from headrace.wiring.receiver import run_receiver

    settings = read_settings(project=project, home=home, receiver_host=host, receiver_port=port, api_url=api_url).with_key()
    set_up_logging(settings)
    hold_lifeline()
    uvloop.run(run_receiver(settings))
