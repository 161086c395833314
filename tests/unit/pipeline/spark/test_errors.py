from __future__ import annotations

import linecache

import pytest

from headrace.errors import PipelineError
from headrace.pipeline.spark.errors import pipeline_error, summary

WORKER = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "{path}", line 12, in <lambda>
    return 1 // 0
ZeroDivisionError: integer division or modulo by zero

JVM stacktrace: something long
"""


def broken(events: object) -> object:
    raise KeyError("leg")


def test_a_pipeline_error_names_the_pipeline_and_the_users_line() -> None:
    with pytest.raises(KeyError) as caught:
        broken(None)
    failure = pipeline_error("legs", broken, caught.value)
    first, second = str(failure).splitlines()
    assert first == "The pipeline 'legs' failed: KeyError: 'leg'"
    assert second.endswith(': raise KeyError("leg")')
    assert __file__ in second
    assert failure.hint == "Nothing is lost: its events come again when the pipeline is started again."


def test_analysis_errors_are_shown_without_the_plan() -> None:
    error = ValueError("[NO_SUCH_COLUMN] No column `x`. Did you mean `y`? SQLSTATE: 42703;\n'Project ['x]\n+- Relation")
    assert summary(error) == "[NO_SUCH_COLUMN] No column `x`. Did you mean `y`?"


def test_a_worker_failure_is_summarised_by_its_last_line() -> None:
    failure = pipeline_error("legs", broken, RuntimeError(WORKER.format(path=__file__)))
    first, second = str(failure).splitlines()
    assert first == "The pipeline 'legs' failed: ZeroDivisionError: integer division or modulo by zero"
    assert second == f"  {__file__}:12: {linecache.getline(__file__, 12).strip()}"


def test_an_incomplete_worker_traceback_is_summarised_by_its_type() -> None:
    assert summary(RuntimeError("Traceback (most recent call last):\n  File")) == "RuntimeError"


def test_an_error_without_a_message_or_python_code_is_named_by_its_type() -> None:
    assert str(pipeline_error("count", len, ValueError())) == "The pipeline 'count' failed: ValueError"


def test_headrace_errors_retain_their_hint() -> None:
    failure = pipeline_error("legs", len, PipelineError("it has no table.", hint="Give it one."))
    assert (str(failure), failure.hint) == ("The pipeline 'legs' failed: it has no table.", "Give it one.")
