"""Watch Spark's JVM, and kill it when it stops answering: one without memory can hang, with every thread that waits for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Final, Self

import structlog
from pyspark import SparkContext

PERIOD_SECONDS: Final = 5.0
MAX_SILENCE_SECONDS: Final = 25
"""With PERIOD_SECONDS, a JVM that hangs is ended within 30 seconds."""


class JvmWatch:
    """Ask Spark's JVM for its time, again and again, and kill it when it does not answer for MAX_SILENCE_SECONDS.

    Calls that wait for the JVM then raise Py4JNetworkError. Only seconds in which this process runs count: one that was paused
    together with its JVM kills nothing.
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
            if not any(wait([answer], timeout=1.0).done for _ in range(MAX_SILENCE_SECONDS)):
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
            log.error("jvm silent", seconds=MAX_SILENCE_SECONDS)
            return
        log.error("jvm killed", seconds_silent=MAX_SILENCE_SECONDS, pid=process.pid)
        process.kill()
