"""What a user declares in one Python file: watches, triggers, pipelines, tasks."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar, overload

from headrace.core.batching import BatchPolicy, policy_name
from headrace.core.values.json_values import why_not_plain
from headrace.core.values.shards import Shard, shard_name
from headrace.core.values.text import describe_error
from headrace.errors import HeadraceError, ProjectError
from headrace.pipeline_declaration import (
    Key,
    OnFailure,
    Pipeline,
    TableFormat,
    check_attempts,
    check_batch,
    check_format,
    check_key,
    check_on_failure,
    check_options,
    check_other_writers,
    check_patterns,
    check_payload,
    check_table,
)
from headrace.stream_checks import check_declarations, check_folders, check_reader_names, check_shards, check_user_code
from headrace.tasks.task import StartTrigger, Task
from headrace.triggers.base import BaseEventTrigger, stream_name
from headrace.triggers.project_paths import PROJECT_FOLDER, resolve_each_path_once
from headrace.triggers.upstream import Upstream
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.triggers import DeclaredPipeline, DeclaredTrigger, DeclareProject

MAX_NAME_CHARS = 200
_NAME = re.compile(rf"[\w.\-]{{1,{MAX_NAME_CHARS}}}")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Project:
    """The declarations of one project file: triggers, pipelines and tasks.

    An invalid declaration raises `ProjectError` at once.
    """

    def __init__(self, name: str) -> None:
        self.name = _checked(name, "A project")
        self._triggers: dict[str, BaseEventTrigger] = {}
        self._policies: dict[str, dict[str, Any]] = {}
        self._pipelines: dict[str, Pipeline] = {}
        self._tasks: dict[str, Task] = {}
        self._declaration: DeclareProject | None = None

    @property
    def triggers(self) -> Mapping[str, BaseEventTrigger]:
        """The triggers, by name."""
        return MappingProxyType(self._triggers)

    @property
    def pipelines(self) -> Mapping[str, Pipeline]:
        """The pipelines, by name."""
        return MappingProxyType(self._pipelines)

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The tasks, by name."""
        return MappingProxyType(self._tasks)

    def watch(
        self,
        name: str,
        upstream: Upstream,
        *,
        match: Mapping[str, Any] | None = None,
        id: str | None = None,
        follows: str | None = None,
        subject: str | None = None,
        occurred: str | None = None,
        type: str | None = None,
        source: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_restarts: int | None = None,
    ) -> WatchTrigger:
        """Declare a trigger without Python code, and return it.

        `match` names fields and their accepted values; None matches every message. `id`, `follows`, `subject` and `occurred` are paths of
        fields in a message, such as `$.order.id`. `type` and `source` are texts or paths, by default the texts of the upstream.
        `queue`, `priority` and `max_restarts` are as for `trigger`.
        """
        if not isinstance(upstream, Upstream):
            raise ProjectError(f"The watch {name!r} has {upstream!r} for an upstream.", hint="Give it one, such as Directory('feed').")
        try:
            trigger = WatchTrigger(
                upstream=upstream, match=match, id=id, follows=follows, subject=subject, occurred=occurred, type=type, source=source
            )
        except ProjectError as error:
            raise ProjectError(f"The watch {name!r}: {error}", hint=error.hint) from error
        self.trigger(name, trigger, queue=queue, priority=priority, max_restarts=max_restarts)
        return trigger

    def trigger(
        self, name: str, trigger: BaseEventTrigger, *, queue: str = "default", priority: int = 0, max_restarts: int | None = None
    ) -> None:
        """Declare a trigger that is written in Python.

        Triggerers that serve `queue` run it. If they are full, triggers with a higher `priority` run first. After `max_restarts` failures
        in a row (default: 10) the trigger is parked.
        """
        if not isinstance(trigger, BaseEventTrigger):
            raise ProjectError(
                f"The trigger {name!r} is not a BaseEventTrigger: {trigger!r}.", hint="Give an instance of a subclass of BaseEventTrigger."
            )
        if _checked(name, "A trigger") in self._triggers:
            raise ProjectError(f"Two triggers have the name {name!r}.")
        self._declaration = None
        self._triggers[name] = trigger
        self._policies[name] = {"queue": queue, "priority": priority, "max_restarts": max_restarts}

    def pipeline(
        self,
        on: str | Sequence[str],
        table: str | None = None,
        name: str | None = None,
        payload: str | None = None,
        batch: BatchPolicy = "micro",
        attempts: int = 3,
        format: TableFormat | None = None,
        on_failure: OnFailure = "release",
        key: Key | None = None,
        columns: str | None = None,
        partition_by: str | Sequence[str] = (),
        evolve: bool = False,
    ) -> Callable[[_Function], _Function]:
        """Declare the decorated function as a pipeline of the events of the triggers that match `on` (names or glob patterns).

        `batch` says which events share a run: "micro" all events since the last run, "each" one event, or a `Debounce` or `Window`. A run
        that fails `attempts` times becomes a dead letter. `format` is that of the table: "parquet", "delta" (needs `headrace[delta]`)
        or "iceberg" (needs `headrace[iceberg]`). `key` makes the table a keyed one, by default in Delta, with these `columns`: the function
        also receives the table's rows of the keys of its events, and returns the rows that replace them.
        `partition_by` names the columns that partition a table of Delta or Iceberg. `evolve` adds the columns that such a table lacks;
        otherwise, rows with such a column are refused. A Parquet table takes them always.
        `on_failure` says what happens to the followers of an event in a dead letter, at any depth: "release" processes them, "hold" holds
        them until the dead letter is settled or discarded. The function itself is unchanged.
        """
        if callable(on):
            raise ProjectError("A pipeline needs to know its triggers.", hint='Write @project.pipeline(on="orders.*", table="spent").')

        def declare(function: _Function) -> _Function:
            pipeline_name = _checked(name if name is not None else getattr(function, "__name__", ""), "A pipeline")
            if pipeline_name in self._pipelines:
                raise ProjectError(f"Two pipelines have the name {pipeline_name!r}.")
            self._declaration = None
            keyed = check_key(key, columns, table, pipeline_name)
            table_format = check_format(format, keyed, pipeline_name)
            pipeline = Pipeline(
                pipeline_name,
                check_patterns(on, pipeline_name),
                function,
                check_table(table, pipeline_name),
                check_payload(payload, pipeline_name),
                check_batch(batch, pipeline_name),
                check_attempts(attempts, pipeline_name),
                table_format,
                check_on_failure(on_failure, pipeline_name),
                keyed,
                check_options(partition_by, evolve=evolve, format=table_format, keyed=keyed, pipeline=pipeline_name),
            )
            check_other_writers(pipeline, self._pipelines.values())
            self._pipelines[pipeline_name] = pipeline
            return function

        return declare

    @overload
    def task(self, name: Callable[..., Any], /) -> Task: ...

    @overload
    def task(
        self,
        name: str | None = None,
        *,
        spark: bool = False,
        start_deferred: StartTrigger | None = None,
        start_timeout: float | timedelta | None = None,
        on_success: Task | str | None = None,
        on_failure: Task | str | None = None,
        on_timeout: Task | str | None = None,
    ) -> Callable[[Callable[..., Any]], Task]: ...

    def task(
        self,
        name: str | Callable[..., Any] | None = None,
        *,
        spark: bool = False,
        start_deferred: StartTrigger | None = None,
        start_timeout: float | timedelta | None = None,
        on_success: Task | str | None = None,
        on_failure: Task | str | None = None,
        on_timeout: Task | str | None = None,
    ) -> Task | Callable[[Callable[..., Any]], Task]:
        """Declare the decorated function as a task, which a worker executes. `@project.task` needs no arguments.

        The arguments are those of `Task`. `on_success`, `on_failure` and `on_timeout` are tasks that are started with the outcome of each
        run.
        """
        if callable(name):
            return self.task()(name)

        def declare(function: Callable[..., Any]) -> Task:
            task_name = _checked(name if name is not None else getattr(function, "__name__", ""), "A task")
            if task_name in self._tasks:
                raise ProjectError(f"Two tasks have the name {task_name!r}.")
            self._declaration = None
            callbacks = {"on_success": on_success, "on_failure": on_failure, "on_timeout": on_timeout}
            self._tasks[task_name] = Task(
                task_name, function, spark=spark, start_deferred=start_deferred, start_timeout=start_timeout, callbacks=callbacks
            )
            return self._tasks[task_name]

        return declare

    def relative_to(self, base: Path) -> None:
        """Resolve relative paths of the watches' upstreams against the folder `base`."""
        self._declaration = None
        moved: dict[int, tuple[Upstream, Upstream]] = {}  # with the first, so that its id is not given again
        for name, trigger in self._triggers.items():
            if isinstance(trigger, WatchTrigger):
                own = trigger.upstream
                _, there = moved.get(id(own)) or moved.setdefault(id(own), (own, own.relative_to(base)))
                self._triggers[name] = trigger.with_upstream(there)

    def modules(self) -> set[str]:
        """Return the modules of the classes of the project's triggers and upstreams."""
        paths = {trigger.serialize()[0] for trigger in self._triggers.values()}
        paths |= {trigger.upstream.serialize()[0] for trigger in self._triggers.values() if isinstance(trigger, WatchTrigger)}
        return {path.rpartition(".")[0] for path in paths}

    def declaration(self) -> DeclareProject:
        """Return the whole project as the API stores it. Raises `ProjectError` if the parts do not fit together."""
        self._declaration = self._declaration or self._declare()
        return self._declaration

    def _declare(self) -> DeclareProject:
        for pipeline in self._pipelines.values():
            for pattern in pipeline.on:
                if not any(fnmatchcase(trigger, pattern) for trigger in self._triggers):
                    raise ProjectError(
                        f"The pipeline {pipeline.name!r} takes {pattern!r}, but no trigger has such a name.",
                        hint=f"The triggers are: {', '.join(self._triggers) or 'none'}.",
                    )
        for task in self._tasks.values():
            for callback in task.callbacks.model_dump(exclude_none=True).values() if task.callbacks else ():
                if callback not in self._tasks:
                    raise ProjectError(
                        f"The task {task.name!r} names {callback!r}, but no task has such a name.",
                        hint=f"The tasks are: {', '.join(self._tasks)}.",
                    )
        triggers = [
            _declared(shard, trigger, self._policies[name])
            for name, whole in self._triggers.items()
            for shard, trigger in _shards_of(name, whole)
        ]
        check_folders(triggers)
        check_shards(self._triggers.values(), triggers)
        check_declarations(self._triggers)
        check_reader_names(self._triggers)
        check_user_code(self._triggers.values())
        return DeclareProject(
            triggers=triggers,
            pipelines=[
                DeclaredPipeline(
                    name=pipeline.name,
                    on=list(pipeline.on),
                    table=pipeline.table,
                    batch=policy_name(pipeline.batch),
                    on_failure=pipeline.on_failure,
                )
                for pipeline in self._pipelines.values()
            ],
        )


def load_project(path: Path) -> Project:
    """Import the project file at `path` and return its project. Raises `ProjectError` for every failure.

    The folder of the file is added to the import path, and relative paths in the project start from it.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise ProjectError(f"There is no project file {path}.", hint="Give its path with --project, or make one with: headrace init")
    PROJECT_FOLDER.set(path.parent)
    module = _imported(path)
    projects = {id(value): value for value in vars(module).values() if isinstance(value, Project)}
    if len(projects) != 1:
        how_many = "no project" if not projects else f"{len(projects)} projects"
        raise ProjectError(f"{path} has {how_many}.", hint='It needs one, at the top level: project = Project("my-project")')
    project = next(iter(projects.values()))
    with resolve_each_path_once():  # again: the import may have made links
        project.relative_to(path.parent)
        project.declaration()
    return project


@resolve_each_path_once()
def _imported(path: Path) -> ModuleType:
    name = "headrace_project_" + re.sub(r"\W", "_", path.stem)
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ProjectError(f"{path} is not a Python file.", hint="A project file ends in .py.")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except HeadraceError as error:
        sys.modules.pop(name)
        raise ProjectError(f"{path}{_line(error, path)}: {error}", hint=error.hint) from error
    except (Exception, SystemExit) as error:
        sys.modules.pop(name)
        raise ProjectError(
            f"{path}{_line(error, path)} does not import: {type(error).__name__}: {error}", hint=f"Try it alone: python {path}"
        ) from error
    return module


def _line(error: BaseException, path: Path) -> str:
    """Where in the project file it went wrong, as `:12`."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    lines = []
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == str(path):
            lines.append(step.tb_lineno)
        step = step.tb_next
    return f":{lines[-1]}" if lines else ""


def _declared(name: str, trigger: BaseEventTrigger, policy: dict[str, Any]) -> DeclaredTrigger:
    try:
        classpath, kwargs = trigger.serialize()
        key = trigger.shared_stream_key()
        if (odd := why_not_plain(kwargs)) is not None:
            raise ValueError(f"of its keyword arguments, {odd}")
        stream = None if key is None else stream_name(key)
        return DeclaredTrigger(name=name, classpath=classpath, kwargs=kwargs, stream=stream, **policy)
    except Exception as error:
        raise ProjectError(
            f"The trigger {name!r} cannot be written down: {describe_error(error)}",
            hint="serialize() returns the class path and keyword arguments of plain JSON: dicts, lists, texts, numbers, bools, None.",
        ) from error


def _shards_of(name: str, trigger: BaseEventTrigger) -> list[tuple[str, BaseEventTrigger]]:
    """Return the triggers to declare for one of the project, by name: a watch on an upstream with shards is one trigger in each."""
    parts = trigger.split() if isinstance(trigger, WatchTrigger) else ()
    if len(parts) <= 1:
        return [(name, trigger)]
    names = [shard_name(name, Shard(number, len(parts))) for number in range(len(parts))]
    if len(names[-1]) > MAX_NAME_CHARS:
        raise ProjectError(
            f"The watch {name!r} cannot be declared: the names of its {len(parts)} shards, such as {names[-1]!r}, are too long.",
            hint=f"With the shard, a name has at most {MAX_NAME_CHARS} characters.",
        )
    return list(zip(names, parts, strict=True))


def _checked(name: object, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ProjectError(f"{what} cannot have the name {name!r}.", hint="A name has letters, digits, '.', '-' and '_', at most 200.")
    return name
