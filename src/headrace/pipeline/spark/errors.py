"""Short descriptions of errors in users' pipelines."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable
from traceback import walk_tb
from typing import Any

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, PipelineError

_MAX_SUMMARY_CHARS = 600


class JvmDied(PipelineError):
    """Spark's JVM died, or was killed because it did not answer. `place` names the run that was executed, if any."""

    def __init__(self, run: str = "") -> None:
        super().__init__(
            f"Spark's JVM died {run}".rstrip() + ".",
            hint="See spark.log in the home folder and what the process printed. If memory was short, return fewer rows at once, or "
            "give the JVM more: --conf spark.driver.memory=2g",
        )


def jvm_died(spark: SparkSession) -> bool:
    """Return whether the session's JVM no longer answers."""
    try:
        spark.conf.get("spark.app.name")
    except (OSError, Py4JNetworkError):
        return True
    return False


def pipeline_error(name: str, function: Callable[..., Any], error: BaseException) -> PipelineError:
    """Return an error with the pipeline's name, a short description, and the user's line if there is one."""
    lines = [f"The pipeline {name!r} failed: {summary(error)}"]
    location = _source_line(function, error)
    if location is not None:
        path, number = location
        lines.append(f"  {path}:{number}: {linecache.getline(path, number).strip()}")
    hint = error.hint if isinstance(error, HeadraceError) else None
    return PipelineError("\n".join(lines), hint=hint or "Nothing is lost: its events come again when the pipeline is started again.")


def summary(error: BaseException) -> str:
    """Return an error's message in one line, without Spark's plan, SQLSTATE and Java stack."""
    text = str(error).strip()
    worker = text.rfind("Traceback (most recent call last):")
    if worker >= 0:
        # A Python function failed in a worker: use the last line of its own traceback.
        raised = [line for line in text[worker:].splitlines()[1:] if line and not line[0].isspace()]
        return raised[0][:_MAX_SUMMARY_CHARS] if raised else type(error).__name__
    if isinstance(error, Py4JJavaError):
        return _java_reason(text) or type(error).__name__
    first = re.sub(r"\s*SQLSTATE: \w+.*", "", text.split("\n", 1)[0])[:_MAX_SUMMARY_CHARS]
    if first.startswith("[") or isinstance(error, HeadraceError):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _java_reason(text: str) -> str:
    """Return the exception of Java and its first cause, each without its package. The first line of the text only names the call."""
    exceptions = re.findall(r"^(?:: |Caused by: )(?:[\w$]+\.)*(.+)", text, re.MULTILINE)
    reasons = [exceptions[0]] if exceptions else []
    if len(exceptions) > 1:
        reasons.append(exceptions[-1])
    return ". Its cause: ".join(reasons)[:_MAX_SUMMARY_CHARS]


def _source_line(function: Callable[..., Any], error: BaseException) -> tuple[str, int] | None:
    """Return the file and line of the deepest frame in the pipeline's file, or None."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    path: str = code.co_filename
    numbers = [number for frame, number in walk_tb(error.__traceback__) if frame.f_code.co_filename == path]
    numbers = [int(digits) for digits in re.findall(rf'File "{re.escape(path)}", line (\d+)', str(error))] or numbers
    return (path, numbers[-1]) if numbers else None
