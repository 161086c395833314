"""`headrace task-runs`: list, show, start and cancel task runs, and print their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final
from uuid import uuid4

import msgspec
import typer

from headrace.cli.console import out
from headrace.cli.credentials import for_changing, for_looking
from headrace.cli.groups import INSPECT, examples, list_group
from headrace.cli.options import ApiUrl, AsJson, Home, Limit, Project
from headrace.cli.rendering import ago, first_line, long, number, print_json, problem, render, render_facts
from headrace.client.admin.task_runs import TaskRunsClient
from headrace.core.matching.payloads import pattern_text
from headrace.errors import PipelineError, UsageError
from headrace.settings import read_settings
from headrace.wire.task_runs import StartTask, TaskRunState, TaskRunStatus, TaskRunSummary

START: Final = """headrace task-runs start score --args '{"day": "2013-01-01"}'"""

group = list_group("List, show, start and cancel task runs.", START)

Id = Annotated[str, typer.Argument(help="Its id, from `headrace task-runs`.", metavar="ID", show_default=False)]
State = Annotated[TaskRunState | None, typer.Option("--state", help="Only task runs in this state.", show_default=False)]
Task = Annotated[str | None, typer.Option("--task", help="Only runs of this task.", metavar="TASK")]
TaskName = Annotated[str, typer.Argument(help="The task, by its name in the project file.", metavar="TASK", show_default=False)]
Arguments = Annotated[str, typer.Option("--args", help="Its arguments: a JSON object.", metavar="JSON")]
NewId = Annotated[str | None, typer.Option("--id", help="Id of the run. A second start with the same id has no effect.", metavar="ID")]


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(group, name="task-runs", rich_help_panel=INSPECT)


@group.command("list", epilog=examples("headrace task-runs list --state deferred"))
def list_task_runs(api_url: ApiUrl = None, state: State = None, task: Task = None, limit: Limit = 20, json: AsJson = False) -> None:
    """List task runs: their state, and the trigger or event that each waits for."""
    settings = read_settings(api_url=api_url)
    with TaskRunsClient(settings.url, key=for_looking(settings) or "") as client:
        page = client.task_runs(limit=limit, state=state, task=task)
    render(
        page,
        [long("id"), "task", "state", number("attempt"), long("waits for"), "changed", problem("error")],
        [(r.run_id, r.task, r.state, r.attempt, _wait(r), ago(r.changed), first_line(r.error)) for r in page.runs],
        json=json,
        empty="There are no such task runs. Start one with `headrace task-runs start TASK --args JSON`.",
    )


@group.command("show", epilog=examples("headrace task-runs show 6f1c3a52 --json"))
def show_task_run(id: Id, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """Show a task run: its arguments, the trigger or event that it waits for, its result or its error."""
    settings = read_settings(api_url=api_url)
    with TaskRunsClient(settings.url, key=for_looking(settings) or "") as client:
        run = client.run(id)
    times = {"created": ago(run.created), "changed": ago(run.changed)}
    facts: dict[str, Any] = run.model_dump(mode="json", exclude={"error", "callbacks"}) | times | {"waits_for": _wait(run)}
    render_facts(run, facts, json=json, text=run.error or "")


@group.command("start", epilog=examples(START))
def start(
    task: TaskName,
    args: Arguments = "{}",
    id: NewId = None,
    project: Project = None,
    api_url: ApiUrl = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Start a task run."""
    from headrace.wiring.project import read_project  # here, since it imports user code

    settings = read_settings(project=project, api_url=api_url, home=home)
    declared = read_project(settings)
    if task not in declared.tasks:
        raise UsageError(f"The project has no task {task!r}.", hint=f"There are: {', '.join(declared.tasks) or 'none'}.")
    request = declared.tasks[task].request(id or str(uuid4()), _arguments(args))
    with TaskRunsClient(settings.url, key=for_changing(settings)) as client:
        _print(client.start(StartTask(project=declared.name, **request.model_dump())), json=json)


@group.command("cancel", epilog=examples("headrace task-runs cancel 6f1c3a52"))
def cancel(id: Id, api_url: ApiUrl = None, home: Home = None, json: AsJson = False) -> None:
    """Cancel a task run in any state, and the trigger that it waits for."""
    settings = read_settings(api_url=api_url, home=home)
    with TaskRunsClient(settings.url, key=for_changing(settings)) as client:
        _print(client.cancel(id), json=json)


@group.command("result", epilog=examples("headrace task-runs result 6f1c3a52 | jq .rows"))
def result(id: Id, api_url: ApiUrl = None) -> None:
    """Print the result of a task run as JSON. Fails if the run did not succeed."""
    settings = read_settings(api_url=api_url)
    with TaskRunsClient(settings.url, key=for_looking(settings) or "") as client:
        run = client.run(id)
    if run.state != "succeeded":
        reason = f": {run.error}" if run.error else ""
        raise PipelineError(f"Task run {id} is {run.state}{reason}", hint=f"See: headrace task-runs show {id}")
    out.print(run.result or "null", markup=False)


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise UsageError(f"--args is not a JSON object: {error}", hint='For example: --args \'{"day": "2013-01-01"}\'') from error


def _print(run: TaskRunStatus, *, json: bool) -> None:
    if json:
        print_json(run)
    else:
        out.print(f"{run.run_id} is {run.state}.", markup=False)


def _wait(run: TaskRunSummary) -> str | None:
    if run.waits_for_event is not None:
        event = run.waits_for_event
        condition = event.model_dump(exclude={"on", "match"}, exclude_none=True)
        what = f"an event of {', '.join(event.on)}" + "".join(f", {name} {value}" for name, value in condition.items())
        what += "" if event.match is None else f" that matches {pattern_text(event.match)}"
    elif run.waits_for is not None:
        what = f"{run.waits_for.classpath.rpartition('.')[2]} ({run.waits_for.state})"
    else:
        return None
    return f"{what} until {run.timeout:%Y-%m-%d %H:%M:%S} UTC" if run.timeout else what
