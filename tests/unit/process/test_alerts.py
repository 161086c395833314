"""Alerts on local processes that end repeatedly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headrace.process.alerts import published_api, restart_alert, standalone_alerts
from headrace.run_files import API, STANDALONE, RunFile

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("ends", "severity"),
    [([], None), ([5], "warning"), ([700, 650], None), ([200, 5], "error"), ([500, 121], "warning"), ([9, 8, 7, 6], "error")],
)
def test_one_end_is_a_warning_and_repeated_ends_are_an_error(ends: list[float], severity: str | None) -> None:
    alert = restart_alert("pipeline", [NOW - ago for ago in ends], NOW)
    assert (alert and alert.severity) == severity


def test_only_a_running_standalone_reports_its_restarted_processes(tmp_path: Path) -> None:
    child = {
        "ends": [NOW - 30, NOW - 4],
        "how": "ended with exit code 1",
        "reason": "the disk is full",
        "hint": "Make room.",
        "running": False,
    }
    assert standalone_alerts(tmp_path, NOW) == []
    with RunFile(tmp_path / STANDALONE) as file:
        file.write({"pid": 1, "children": {"pipeline": child, "api": child | {"ends": []}}})
        (alert,) = standalone_alerts(tmp_path, NOW)
    assert (alert.severity, alert.about) == ("error", "process:pipeline")
    assert alert.summary == "The pipeline was started again 2 times in 10 minutes. It ended with exit code 1: the disk is full Make room."
    assert standalone_alerts(tmp_path, NOW) == []


def test_an_api_server_counts_its_own_unclean_ends(tmp_path: Path) -> None:
    with published_api(tmp_path, "http://127.0.0.1:1") as alerts:
        assert alerts() == []
    with published_api(tmp_path, "http://127.0.0.1:1") as alerts:
        assert alerts() == []  # the one before was stopped in order
    for expected in ("warning", "error"):
        with RunFile(tmp_path / API) as file:  # as a killed api leaves it
            old = [] if expected == "warning" else [time.time()]
            file.write({"pid": 1, "url": "http://127.0.0.1:1", "ends": old, "stopped": False})
        with published_api(tmp_path, "http://127.0.0.1:1") as alerts:
            (alert,) = alerts()
            assert (alert.severity, alert.about) == (expected, "process:api")
