"""Start Spark's Python workers such that they can report any exception (`spark.python.daemon.module`).

PySpark's own worker announces an exception, and then fails to encode a text that UTF-8 cannot hold, such as a lone surrogate. Its JVM
then waits for that text without an end, and the worker for its JVM. This module needs nothing but PySpark, since executors have no more.
"""

from __future__ import annotations

import traceback
from typing import IO

import pyspark.util
from pyspark.daemon import manager

_report = pyspark.util.handle_worker_exception


def report_exception(e: BaseException, outfile: IO[bytes], hide_traceback: bool | None = None) -> None:
    """Write an exception for the JVM, as PySpark does. One that UTF-8 cannot hold is replaced by its escaped text."""
    text = "".join(traceback.format_exception(e))
    if not text.isascii():
        escaped = text.encode("utf-8", "backslashreplace").decode()
        e = e if escaped == text else RuntimeError(escaped)
    _report(e, outfile, hide_traceback)


if __name__ == "__main__":
    pyspark.util.handle_worker_exception = report_exception
    manager()
