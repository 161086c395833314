"""What a project declares a task: a function that is run by a worker, and the methods with which it goes on after a wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from headrace.errors import ProjectError
from headrace.tasks.deferral import TaskDeferred, arguments_as_json
from headrace.tasks.log_event import LogEvent
from headrace.tasks.starter import current_starter, run_id_of
from headrace.triggers.base import BaseTrigger
from headrace.wire.task_runs import Callbacks, StartRun

Body = TypeVar("Body", bound=Callable[..., Any])
StartTrigger = BaseTrigger | LogEvent | Callable[..., BaseTrigger | LogEvent]


class Task:
    """One task. `function` gets a `Run` and the arguments of the run; its return value (JSON) is the result of the run.

    `start_deferred` is a trigger, a `LogEvent`, or a function of the arguments that returns one. The run waits for it before it uses a
    worker, and `function` gets the trigger event as `event`. `spark`: the task uses `run.spark`.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        spark: bool = False,
        start_deferred: StartTrigger | None = None,
        start_timeout: float | timedelta | None = None,
        callbacks: Mapping[str, object] | None = None,
    ) -> None:
        self.name = name
        self.function = function
        self.spark = spark
        self._start_deferred = start_deferred
        self._start_timeout = start_timeout
        named = {when: _name_of(task) for when, task in (callbacks or {}).items() if task is not None}
        self.callbacks = Callbacks(**named) if named else None
        self._methods: dict[str, Callable[..., Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as a test may want to."""
        return self.function(*args, **kwargs)

    def method(self, function: Body) -> Body:
        """Declare the decorated function as a method of the task, with which a run continues after a wait."""
        name = function.__name__
        if name in self._methods:
            raise ProjectError(f"The task {self.name!r} has two methods {name!r}.")
        self._methods[name] = function
        return function

    def body(self, method: str | None) -> Callable[..., Any]:
        """Return the method of this name (None: the task itself). Raises `ProjectError` if the task has none."""
        if method is None:
            return self.function
        if method not in self._methods:
            raise ProjectError(
                f"The task {self.name!r} has no method {method!r}.",
                hint=f"Declare it with @{self.name}.method; there are: {', '.join(self._methods) or 'none'}.",
            )
        return self._methods[method]

    def check(self, deferred: TaskDeferred) -> TaskDeferred:
        """Return a deferral whose methods exist. Raises `ProjectError`."""
        for name in (deferred.method_name, deferred.timeout_method):
            self.body(name)
        return deferred

    def start(self, name: str | None = None, /, **kwargs: Any) -> str:
        """Start a run from a pipeline or another task; return its id.

        One run is started for each pipeline run (or task run) and `name`, even if the pipeline run is repeated. Without `name`, it is one
        for each set of arguments.
        """
        parent, starter = current_starter()
        run_id = run_id_of(parent, self.name, arguments_as_json(kwargs, "the arguments") if name is None else f"name:{name}")
        starter(self.request(run_id, kwargs))
        return run_id

    def request(self, run_id: str, kwargs: Mapping[str, Any]) -> StartRun:
        """Return the request that starts a run."""
        waiting = None
        if self._start_deferred is not None:
            trigger = self._start_deferred if isinstance(self._start_deferred, BaseTrigger | LogEvent) else self._start_deferred(**kwargs)
            waiting = TaskDeferred(trigger, None, kwargs, self._start_timeout).waiting()
        return StartRun(
            run_id=run_id, task=self.name, kwargs=arguments_as_json(kwargs, "the arguments"), waiting=waiting, callbacks=self.callbacks
        )


def _name_of(task: object) -> str:
    if isinstance(task, Task):
        return task.name
    if isinstance(task, str) and task:
        return task
    raise ProjectError(f"{task!r} is not a task.", hint="Give a task, or its name.")
