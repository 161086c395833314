"""Keep the garbage collector away while very many things are made that are freed at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_pauses = 0


@contextmanager
def collecting_paused() -> Iterator[None]:
    """Collect nothing in the block, which may run in several threads at once.

    A full collection stops every thread. With the triggers of a project of 100,000 in memory it takes half a second, in which the api's
    loop would stand. What the block makes is freed without a cycle when it ends.
    """
    global _pauses  # noqa: PLW0603  the collector is the process's
    with _lock:
        _pauses += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses:
                gc.enable()
