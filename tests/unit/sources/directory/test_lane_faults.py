from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headrace.sources.directory import lane, lanes
from support.sources.folder_faults import World, survive
from support.sources.folder_kills import KillingWorld

SEED = int(os.environ["HEADRACE_TEST_SEED"])


@pytest.mark.parametrize("number", range(6))
async def test_random_changes_of_a_folder_lose_or_corrupt_no_line(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lane, lanes):
        monkeypatch.setattr(module, "QUIET", 0.05)
    seed = SEED * 1_000 + number
    sys.stdout.write(f"seed {seed}\n")
    await survive(World(tmp_path, seed), 50)


async def test_random_kills_of_the_reader_lose_or_corrupt_no_line(tmp_path: Path) -> None:
    sys.stdout.write(f"seed {SEED}\n")
    await survive(KillingWorld(tmp_path, SEED), 40)
