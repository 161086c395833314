"""Failed tests are repeated alone where CI requests it, and a run ends as its repetition does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scripts import pytest_repetition as repetition

pytestmark = pytest.mark.slow

TESTS = """\
from pathlib import Path

import pytest


@pytest.mark.xdist_group("group")
@pytest.mark.parametrize("number", range({failing}))
def test_that_fails_once(number):
    ran = Path(__file__).parent / f"{{number}} ran"
    first = not ran.exists()
    ran.touch()
    assert not first


def test_that_passes():
    ran = Path(__file__).parent / "passed"
    assert not ran.exists()
    ran.touch()


def test_that_fails_always():
    assert {passes}
"""


def run(folder: Path, *, failing: int = 1, passes: bool = True, seconds: float | None = 100) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder. `seconds` are left for the repetition, or None does not request it."""
    (folder / "test_it.py").write_text(TESTS.format(failing=failing, passes=passes))
    (folder / "pytest.ini").write_text("[pytest]\n")
    request = {} if seconds is None else {repetition.REPEAT_END: str(time.time() + seconds)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TESTS_"))}
    environment["PYTHONPATH"] = str(Path(repetition.__file__).parents[1])
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "--dist", "loadgroup", "-p", "scripts.pytest_repetition", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment | request)


def test_a_test_that_passes_alone_is_listed_and_fails_nothing(tmp_path: Path) -> None:
    ran = run(tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert "FAILED BESIDE OTHERS, PASSED ALONE test_it.py::test_that_fails_once[0]" in ran.stdout
    assert "1 failed, 2 passed" in ran.stdout
    assert "1 passed" in ran.stdout


@pytest.mark.parametrize(
    "settings",
    [{"passes": False}, {"failing": repetition.MAX_REPEATED + 1}, {"seconds": None}, {"seconds": 0}],
    ids=["fails-again", "many", "not-requested", "late"],
)
def test_a_run_fails_if_a_test_fails_again_or_is_not_repeated(tmp_path: Path, settings: dict[str, Any]) -> None:
    ran = run(tmp_path, **settings)
    assert ran.returncode == 1, ran.stdout
    assert "PASSED ALONE" not in ran.stdout
