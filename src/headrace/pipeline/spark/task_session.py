"""The Spark session of a worker: opened when a task first requests it, shared by all tasks, stopped at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TaskSession:
    """A context manager; call it for the session. `functions` are those of the project that executors may run."""

    def __init__(self, app: str, *, master: str, conf: Mapping[str, str], work: Path, functions: Iterable[Callable[..., Any]]) -> None:
        self._app = app
        self._master = master
        self._conf = conf
        self._work = work
        self._functions = list(functions)
        self._lock = Lock()
        self._exits = ExitStack()
        self._spark: SparkSession | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._exits.close()

    def __call__(self) -> SparkSession:
        """Return the session. Raises `JavaError` and `PipelineError` where it does not start."""
        with self._lock:
            if self._spark is None:
                # late: a worker without Spark tasks needs Spark neither installed nor in memory
                from headrace.pipeline.spark.code_shipping import ship_functions
                from headrace.pipeline.spark.session import open_session

                opened = open_session(
                    self._app, master=self._master, conf=self._conf, work=self._work, folders=ship_functions(self._functions)
                )
                self._spark = self._exits.enter_context(opened)
            return self._spark
