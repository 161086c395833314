"""A pipeline that is killed before, in and after the commit of its tables; `make soak-pipeline` does it at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_kills import PHASES, Shape, soak

pytestmark = [pytest.mark.acceptance, pytest.mark.spark, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(500)]


def test_tables_are_exact_after_a_kill_in_each_phase_of_a_batch(tmp_path: Path) -> None:
    told = soak(tmp_path, Shape(events=20_000, kills=3, ahead=2_000, lookback=4.0), seed=7, say=print)
    assert told is not None
    assert told["phases"] == dict.fromkeys(PHASES, 1)
    assert {"lost", "late", "cycle"} <= told["marks"].keys()
