"""The pace of the garbage collector."""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS: Final = 10_000


def collect_less_often() -> None:
    """Collect young objects after YOUNG_OBJECTS new ones, not after the default number, which is 700 in Python 3.11.

    A message is several objects that are freed together, without a cycle. With the default, they are visited while they wait for their
    batch, which takes 8 % of a runner's processor time and 7 % of an API server's. With the default, an API server also imports its
    modules 9 to 18 % more slowly. Older generations are collected after ten collections of the next younger one.
    """
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)
