"""The demo as a user runs it: interrupted and continued, and with a kill of every process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(420)]


def demo(home: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "demo", "--home", str(home), "--port", "0", *arguments]


def alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that only waits for its parent to look has ended."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def interrupted(home: Path) -> list[str]:
    """Run the demo until it has read something new, and stop it with Ctrl-C: it ends with all that it started. Return what it said."""
    with subprocess.Popen(demo(home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        seen = []
        for line in run.stdout:
            seen.append(line)
            if " read " in line and " read 0 " not in line:
                break
        children = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGINT)
        seen += run.stdout.readlines()
    assert run.returncode == 130, "".join(seen)
    assert [child for child in children if alive(child)] == []
    return seen


def test_ctrl_c_stops_the_demo_and_the_same_command_continues_it(tmp_path: Path) -> None:
    assert "The same command goes on from here." in "".join(interrupted(tmp_path))
    assert "An earlier run was stopped: this one goes on where it was." in "".join(interrupted(tmp_path))


def test_the_demo_passes_its_check_after_a_kill_of_each_process() -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "soak.py"), "--seeds", "0", "--kills", "1", "--supervisor", "--kill-seed", "7"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count(" at ") == 6, run.stdout


@pytest.mark.smoke
def test_a_foreign_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years of work")
    run = subprocess.run(demo(tmp_path, "--fresh"), capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "is not empty and is not a demo's folder" in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
