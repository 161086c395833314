"""`headrace task-runs list|show|start|cancel|result`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import uuid4

import msgspec
import typer

from headrace.cli.console import out
from headrace.cli.credentials import for_changing, for_looking
from headrace.cli.options import ApiUrl, AsJson, Home, Limit, Project
from headrace.cli.rendering import ago, show, show_json
from headrace.client.admin.task_runs import TaskRunsClient
from headrace.errors import PipelineError, UsageError
from headrace.settings import read_settings
from headrace.wire.task_runs import StartTask, TaskRun, TaskRunIs, TaskRunState

LISTED = 20

group = typer.Typer(
    help="List, show, start and cancel task runs.",
    epilog='Example: [bold]headrace task-runs start score --args \'{"day": "2013-01-01"}\'[/bold]',
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)

Id = Annotated[str, typer.Argument(help="Its id, from `headrace task-runs list`.", metavar="ID")]
State = Annotated[TaskRunState | None, typer.Option("--state", help="Only task runs in this state.", show_default=False)]
Task = Annotated[str | None, typer.Option("--task", help="Only runs of this task.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="task-runs", rich_help_panel="Inspect and repair")


@group.command("list", epilog="Example: [bold]headrace task-runs list --state deferred[/bold]")
def list_task_runs(api_url: ApiUrl = None, state: State = None, task: Task = None, limit: Limit = LISTED, json: AsJson = False) -> None:
    """List task runs: their state, and the trigger or event that each waits for."""
    settings = read_settings(api_url=api_url)
    with TaskRunsClient(settings.url, key=for_looking(settings) or "") as client:
        found = client.runs(limit=limit, state=state, task=task)
    if json:
        show_json(found)
        return
    show(
        ["~id", "task", "state", "#attempt", "~waits for", "changed", "!error"],
        [(r.run_id, r.task, r.state, r.attempt, _waits(r), ago(r.changed), (r.error or "").partition("\n")[0]) for r in found.runs],
        empty="No such task run. Start one with `headrace task-runs start TASK --args JSON`.",
    )


@group.command("show", epilog="Example: [bold]headrace task-runs show 6f1c3a52 --json[/bold]")
def show_task_run(id: Id, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show a task run: its arguments, the trigger or event that it waits for, its result or its error."""
    settings = read_settings(api_url=api_url)
    with TaskRunsClient(settings.url, key=for_looking(settings) or "") as client:
        run = client.run(id)
    if json:
        show_json(run)
        return
    moments = {"created": ago(run.created), "changed": ago(run.changed)}
    facts: dict[str, Any] = run.model_dump(mode="json", exclude={"error", "callbacks"}) | moments | {"waits_for": _waits(run)}
    show(["what", "~value"], [(name, None if value is None else str(value)) for name, value in facts.items()], empty="")
    if run.error:
        out.print(run.error, markup=False)


@group.command("start", epilog='Example: [bold]headrace task-runs start score --args \'{"day": "2013-01-01"}\'[/bold]')
def start(
    task: Annotated[str, typer.Argument(help="The task, as the project file names it.", metavar="TASK")],
    args: Annotated[str, typer.Option("--args", help="Its arguments: a JSON object.", metavar="JSON")] = "{}",
    id: Annotated[
        str | None, typer.Option("--id", help="Id of the run. A second start with the same id starts nothing.", show_default=False)
    ] = None,
    project: Project = None,
    api_url: ApiUrl = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Start a task run."""
    from headrace.wiring.project import read_project  # late: it imports user code

    settings = read_settings(project=project, api_url=api_url, home=home)
    declared = read_project(settings)
    if task not in declared.tasks:
        raise UsageError(f"The project has no task {task!r}.", hint=f"There are: {', '.join(declared.tasks) or 'none'}.")
    request = declared.tasks[task].request(id or str(uuid4()), _arguments(args))
    with TaskRunsClient(settings.url, key=for_changing(settings)) as client:
        _tell(client.start(StartTask(project=declared.name, **request.model_dump())), json=json)


@group.command("cancel", epilog="Example: [bold]headrace task-runs cancel 6f1c3a52[/bold]")
def cancel(id: Id, api_url: ApiUrl = None, home: Home = None, json: AsJson = False) -> None:
    """Cancel a task run in any state, and the trigger that it waits for."""
    settings = read_settings(api_url=api_url, home=home)
    with TaskRunsClient(settings.url, key=for_changing(settings)) as client:
        _tell(client.cancel(id), json=json)


@group.command("result", epilog="Example: [bold]headrace task-runs result 6f1c3a52 | jq .rows[/bold]")
def result(id: Id, api_url: ApiUrl = None) -> None:
    """Print the result of a task run as JSON. Fails if the run did not succeed."""
    settings = read_settings(api_url=api_url)
    with TaskRunsClient(settings.url, key=for_looking(settings) or "") as client:
        run = client.run(id)
    if run.state != "succeeded":
        why = f": {run.error}" if run.error else ""
        raise PipelineError(f"Task run {id} is {run.state}{why}", hint=f"See: headrace task-runs show {id}")
    out.print(run.result or "null", markup=False)


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise UsageError(f"--args is not a JSON object: {error}", hint='Like this: --args \'{"day": "2013-01-01"}\'') from error


def _tell(run: TaskRunIs, *, json: bool) -> None:
    if json:
        show_json(run)
    else:
        out.print(f"{run.run_id} is {run.state}.", markup=False)


def _waits(run: TaskRun) -> str | None:
    if run.waits_for_event is not None:
        asked = run.waits_for_event.model_dump(exclude={"on"}, exclude_none=True)
        what = f"an event of {', '.join(run.waits_for_event.on)}" + "".join(f", {name} {value}" for name, value in asked.items())
    elif run.waits_for is not None:
        what = f"{run.waits_for.classpath.rpartition('.')[2]} ({run.waits_for.state})"
    else:
        return None
    return f"{what} until {run.timeout:%Y-%m-%d %H:%M:%S} UTC" if run.timeout else what
