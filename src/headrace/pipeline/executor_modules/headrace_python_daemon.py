"""Start Spark's Python workers such that they can report any exception (`spark.python.daemon.module`).

PySpark's own worker announces an exception, and then fails to encode text that UTF-8 cannot represent, such as a lone
surrogate. Its JVM waits for that text forever, and the worker for its JVM. This module imports only PySpark, because
executors have nothing else.
"""

from __future__ import annotations

import traceback
from typing import IO

import pyspark.util
from pyspark.daemon import manager

_report = pyspark.util.handle_worker_exception


def report_exception(e: BaseException, outfile: IO[bytes], hide_traceback: bool | None = None) -> None:
    """Write an exception for the JVM, as PySpark does. Text that UTF-8 cannot represent is escaped."""
    text = "".join(traceback.format_exception(e))
    if not text.isascii():
        escaped = text.encode("utf-8", "backslashreplace").decode()
        e = e if escaped == text else RuntimeError(escaped)
    _report(e, outfile, hide_traceback)


if __name__ == "__main__":
    pyspark.util.handle_worker_exception = report_exception
    manager()
