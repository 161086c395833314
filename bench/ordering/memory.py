"""Measure the peak memory of the processes of a run."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final, Self

import psutil

_EVERY: Final = 0.2


class Watched:
    """A context in which this process and its children are looked at five times a second."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._most: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def most(self) -> dict[str, int]:
        """Return the MiB that the driver, the JVM and the largest Python worker had resident at most, each by itself."""
        return {who: held >> 20 for who, held in self._most.items()}

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._over.wait(_EVERY):
            for process in [me, *me.children(recursive=True)]:
                try:
                    who = "driver" if process.pid == me.pid else "JVM" if process.name().startswith("java") else "worker"
                    self._most[who] = max(self._most.get(who, 0), process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue  # it ended while we looked
