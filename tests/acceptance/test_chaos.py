"""Everything that can happen, at random moments, to real processes under load: nothing is lost, repeated, mixed, or held by two.

The seed is in the name of the test: `CHAOS_SEED` runs one that failed again; `make soak-control` does it for longer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.chaos.kit import clock_library
from support.chaos.plan import Shape
from support.chaos.run import chaos

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(420)]

SEED = int(os.environ["CHAOS_SEED"])


@pytest.mark.parametrize("seed", [SEED])
def test_nothing_is_lost_or_repeated_whatever_happens(tmp_path: Path, seed: int) -> None:
    shape = Shape(
        postgresql=True,
        apis=2,
        queues=4,
        folders=1,
        triggers=10,
        seconds=12,
        messages=60,
        gap=1.3,
        threshold=3,
        longest=2.5,
        clocks=clock_library() is not None,
    )
    chaos(tmp_path, shape, seed, print)
