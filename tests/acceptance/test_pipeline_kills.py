"""A driver that is killed before, during and after the commit of its tables; `make soak-pipeline` does it at length."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.pipelines.bucket_tables import bucket_tables
from support.pipelines.kills import PHASES, Shape, soak
from support.pipelines.power_cut_volume import Volume, missing
from support.processes.iceberg_rest import rest_catalog_over_s3

pytestmark = [pytest.mark.acceptance, pytest.mark.spark, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(500)]


def test_tables_are_exact_after_a_kill_in_each_phase_of_a_batch(tmp_path: Path) -> None:
    told = soak(tmp_path, Shape(events=20_000, kills=3, ahead=2_000, lookback=4.0), seed=7, say=print)
    assert told is not None
    assert told["phases"] == dict.fromkeys(PHASES, 1)
    assert {"lost", "late", "cycle"} <= told["marks"].keys()


@pytest.mark.brokers
@pytest.mark.exhaustive
def test_tables_in_a_bucket_are_exact_after_a_kill_in_each_phase_of_a_batch(tmp_path: Path) -> None:
    with bucket_tables() as bucket:
        told = soak(tmp_path, Shape(events=10_000, kills=3, ahead=1_000, lookback=4.0), seed=7, say=print, bucket=bucket)
    assert told is not None
    assert told["phases"] == dict.fromkeys(PHASES, 1)
    assert {"lost", "late", "cycle"} <= told["marks"].keys()
    assert not (tmp_path / "tables").exists()


@pytest.mark.brokers
def test_iceberg_tables_of_a_catalog_over_s3_are_exact_after_a_kill_in_each_phase_of_a_batch(tmp_path: Path) -> None:
    with rest_catalog_over_s3():
        told = soak(tmp_path, Shape(events=10_000, kills=3, ahead=1_000, lookback=4.0), seed=7, say=print)
    assert told is not None
    assert told["phases"] == dict.fromkeys(PHASES, 1)
    assert not (tmp_path / "tables" / ".iceberg").exists()


with_power = pytest.mark.skipif(missing() is not None, reason=f"no power can be cut: {missing()}")


@with_power
def test_a_power_cut_loses_exactly_the_unsynced_data(tmp_path: Path) -> None:
    with Volume(tmp_path / "tables") as volume:
        (volume.folder / "written").write_bytes(b"x" * 100_000)
        with (volume.folder / "synced").open("wb") as file:
            file.write(b"y" * 1_000)
            file.flush()
            os.fsync(file.fileno())
        (volume.folder / "synced").rename(volume.folder / "renamed")
        assert volume.cut() == [volume.folder / "renamed", volume.folder / "written"]
        assert (volume.folder / "synced").read_bytes() == b"y" * 1_000
        assert volume.cut() == []


@with_power
def test_tables_are_exact_after_power_cuts(tmp_path: Path) -> None:
    with Volume(tmp_path / "tables") as volume:
        told = soak(tmp_path, Shape(events=20_000, kills=3, ahead=2_000, lookback=4.0), seed=7, say=print, volume=volume)
    assert told is not None
    assert told["kills"] == 3
