"""Two drivers that compete for one scope; `make soak-pipeline SOAK="--rivals 3"` does it at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pipelines.bucket_tables import bucket_tables
from support.pipelines.kills import Shape
from support.pipelines.rivals import FAULTS, FAULTS_IN_BUCKET, fight

pytestmark = [pytest.mark.acceptance, pytest.mark.spark, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(600)]


def test_tables_are_exact_when_two_drivers_compete_for_a_scope(tmp_path: Path) -> None:
    told = fight(tmp_path, Shape(events=20_000, kills=len(FAULTS), ahead=1_000, lookback=8.0), rivals=2, seed=7, say=print)
    assert told["faults"] == dict.fromkeys(FAULTS, 1)
    assert told["takeovers"]


@pytest.mark.brokers
@pytest.mark.exhaustive
def test_tables_in_a_bucket_are_exact_when_two_drivers_compete_for_a_scope(tmp_path: Path) -> None:
    shape = Shape(events=20_000, kills=len(FAULTS_IN_BUCKET), ahead=1_000, lookback=8.0)
    with bucket_tables() as bucket:
        told = fight(tmp_path, shape, rivals=2, seed=7, say=print, bucket=bucket)
    assert told["faults"] == dict.fromkeys(FAULTS_IN_BUCKET, 1)
    assert told["takeovers"]
    assert not (tmp_path / "tables").exists()
