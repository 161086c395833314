"""The guides on tests and triggers: pytest runs their files unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs/guides"


def run(folder: Path, guide: str, *names: str) -> None:
    """Write the files of a guide, and run the tests among them."""
    files = dict(re.findall(r'```python title="(\w+\.py)"\n(.*?)```', (GUIDES / guide).read_text(), re.DOTALL))
    for name in names:
        (folder / name).write_text(files[name])
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:xdist", *names[-1:]]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "skipped" not in ran.stdout


@pytest.mark.spark
@pytest.mark.slow
def test_the_project_of_the_guide_passes_its_tests(tmp_path: Path) -> None:
    run(tmp_path, "testing.md", "project.py", "conftest.py", "test_project.py")


@pytest.mark.acceptance
@pytest.mark.spark
@pytest.mark.slow
def test_the_deployment_of_the_guide_passes_its_test(tmp_path: Path) -> None:
    run(tmp_path, "testing.md", "conftest.py", "test_deployment.py")


@pytest.mark.slow
def test_the_trigger_of_the_guide_passes_its_test(tmp_path: Path) -> None:
    run(tmp_path, "triggers.md", "my_triggers.py", "project.py", "test_my_triggers.py")
