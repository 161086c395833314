from __future__ import annotations

import linecache

import pytest
from py4j.protocol import Py4JJavaError

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


JAVA = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: External scheduler cannot be instantiated
\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3240)
Caused by: java.lang.RuntimeException: java.lang.ClassNotFoundException: Class a.b.Mapping not found
\t... 15 more
Caused by: java.lang.ClassNotFoundException: Class a.b.Mapping not found
\t... 21 more
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (JAVA, "SparkException: External scheduler cannot be instantiated. Its cause: ClassNotFoundException: Class a.b.Mapping not found"),
        (
            "An error occurred while calling o1.run.\n: java.lang.OutOfMemoryError: Java heap space\n\tat x",
            "OutOfMemoryError: Java heap space",
        ),
        ("An error occurred while calling o1.run.", "JavaError"),
    ],
)
def test_an_exception_of_java_is_named_with_its_first_cause(text: str, expected: str) -> None:
    class JavaError(Py4JJavaError):  # type: ignore[misc]  # the original asks its JVM for the text
        def __init__(self) -> None:
            self.errmsg = text

        def __str__(self) -> str:
            return text

    assert summary(JavaError()) == expected
