"""Keep the garbage collector from looking through everything while much is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

_MANY = 1000


@contextmanager
def made_to_stay(count: int) -> Iterator[None]:
    """Pause the collector while `count` long-lived objects are made, and never look through them again.

    A full collection goes through all that lives: with 20,000 triggers it would hold up the loop for a tenth of a second, again and again.
    Objects without a cycle are freed as always.
    """
    with nullcontext() if count < _MANY else _paused(at_end=False):
        yield


@contextmanager
def collect_at_end() -> Iterator[None]:
    """Pause the collector, collect once at the end, and never look through the remaining objects again.

    For work before there is a loop: with 100,000 watches the collections during the import take a fifth of its time.
    """
    with _paused(at_end=True):
        yield


@contextmanager
def _paused(*, at_end: bool) -> Iterator[None]:
    """Pause the collector, unless it is paused already."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        if at_end:
            gc.collect()
        gc.freeze()
