"""Faults of every kind at random moments in real processes under load: no event is lost or repeated, and each stream has one owner.

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
def test_random_faults_neither_lose_nor_repeat_events(tmp_path: Path, seed: int) -> None:
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
