"""What went wrong in a user's pipeline, said in a few lines."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable
from traceback import walk_tb
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, PipelineError

_LONGEST = 600


class JvmDied(PipelineError):
    """Spark's JVM died, or did not answer any more and was killed. `place` says in which run, where one was under way."""

    def __init__(self, place: str = "") -> None:
        super().__init__(
            f"Spark's JVM died {place}".rstrip() + ".",
            hint="See spark.log in the home folder and what the process printed. If memory was short, return fewer rows at once, or "
            "give the JVM more: --conf spark.driver.memory=2g",
        )


def jvm_died(spark: SparkSession) -> bool:
    """Whether the session's JVM does not answer any more."""
    try:
        spark.conf.get("spark.app.name")
    except (OSError, Py4JNetworkError):
        return True
    return False


def pipeline_error(name: str, function: Callable[..., Any], error: BaseException) -> PipelineError:
    """Return an error that names the pipeline, says in short what happened, and shows the user's line where there is one."""
    lines = [f"The pipeline {name!r} failed: {summary(error)}"]
    place = _place(function, error)
    if place is not None:
        path, number = place
        lines.append(f"  {path}:{number}: {linecache.getline(path, number).strip()}")
    hint = error.hint if isinstance(error, HeadraceError) else None
    return PipelineError("\n".join(lines), hint=hint or "Nothing is lost: its events come again when the pipeline is started again.")


def summary(error: BaseException) -> str:
    """Return what an error says, in a line: of Spark's, neither the plan, nor the SQLSTATE, nor Java's stack."""
    text = str(error).strip()
    worker = text.rfind("Traceback (most recent call last):")
    if worker >= 0:
        # A Python function that ran in a worker: what counts is the last line of its own traceback.
        raised = [line for line in text[worker:].splitlines()[1:] if line and not line[0].isspace()]
        return raised[0][:_LONGEST] if raised else type(error).__name__
    first = re.sub(r"\s*SQLSTATE: \w+.*", "", text.split("\n", 1)[0])[:_LONGEST]
    if first.startswith("[") or isinstance(error, HeadraceError):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _place(function: Callable[..., Any], error: BaseException) -> tuple[str, int] | None:
    """Return file and line of the deepest frame in the file that has the pipeline."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    path: str = code.co_filename
    numbers = [number for frame, number in walk_tb(error.__traceback__) if frame.f_code.co_filename == path]
    numbers = [int(found) for found in re.findall(rf'File "{re.escape(path)}", line (\d+)', str(error))] or numbers
    return (path, numbers[-1]) if numbers else None
