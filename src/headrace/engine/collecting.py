"""Keep the garbage collector from looking through everything while much is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 1000


@contextmanager
def made_to_stay(count: int) -> Iterator[None]:
    """Collect nothing while `count` long-lived things are made, and look at them no more once they are.

    A full collection goes through all that lives: with 20,000 triggers it would hold up the loop for a tenth of a second, again and again.
    What is freed without a cycle is freed as ever.
    """
    if count < _MANY or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def collect_at_end() -> Iterator[None]:
    """Collect nothing meanwhile, everything at the end, and look at what is left no more.

    For work before there is a loop: with 100,000 watches the collections during the import take a fifth of its time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
