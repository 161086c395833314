"""Watch Spark's JVM and kill it if it stops answering. A JVM without memory can hang, with all threads that wait for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Final, Self

import structlog
from pyspark import SparkContext

PERIOD_SECONDS: Final = 5.0
MAX_ANSWER_SECONDS: Final = 25
"""With PERIOD_SECONDS, a hanging JVM is killed within 30 seconds."""


class JvmWatch:
    """Queries the time of Spark's JVM periodically, and kills it if it does not answer for MAX_ANSWER_SECONDS.

    Calls that wait for the JVM then raise Py4JNetworkError. Only seconds in which this process runs count, so a process
    that was paused together with its JVM does not kill it.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._ended = threading.Event()
        self._calls = ThreadPoolExecutor(1, "jvm-time")
        self._thread = threading.Thread(target=self._watch, name="jvm-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self._calls.shutdown()

    def _watch(self) -> None:
        while not self._ended.wait(PERIOD_SECONDS):
            answer = self._calls.submit(self._ask)
            if not any(wait([answer], timeout=1.0).done for _ in range(MAX_ANSWER_SECONDS)):
                self._kill()
                return
            if answer.exception() is not None:  # the JVM has died; the thread that works with it handles that
                return

    def _ask(self) -> None:
        jvm: Any = self._context._jvm  # noqa: SLF001  pyspark has no public call that is as light
        jvm.System.currentTimeMillis()

    def _kill(self) -> None:
        log = structlog.get_logger(__name__)
        process = getattr(self._context._gateway, "proc", None)  # noqa: SLF001  pyspark does not publish the process that it started
        if process is None:
            log.error("JVM unresponsive", seconds=MAX_ANSWER_SECONDS)
            return
        log.error("JVM killed", seconds_silent=MAX_ANSWER_SECONDS, pid=process.pid)
        process.kill()
