"""Measure the peak memory of the processes of a run."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final, Self

import psutil

_SAMPLE_SECONDS: Final = 0.2


class PeakMemory:
    """A context that samples the resident memory of this process and its children five times per second."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._peak: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def mib(self) -> dict[str, int]:
        """Return the maximum resident memory of the driver, the JVM and the largest Python worker, in MiB."""
        return {kind: size >> 20 for kind, size in self._peak.items()}

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._over.wait(_SAMPLE_SECONDS):
            for process in [me, *me.children(recursive=True)]:
                try:
                    kind = "driver" if process.pid == me.pid else "JVM" if process.name().startswith("java") else "worker"
                    self._peak[kind] = max(self._peak.get(kind, 0), process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue  # it has ended
