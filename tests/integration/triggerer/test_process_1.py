"""A triggerer that is process 1, as in a container without an init, starts its runner."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = """
from headrace import Memory, Project

project = Project("init")
project.watch("all", Memory("init"), id="$.id")
"""
SUPERVISOR = """
import asyncio, os, sys
from headrace.triggerer.supervisor.runner_process import RunnerCommand, RunnerProcess

async def main():
    runner = await RunnerProcess.start(RunnerCommand((sys.executable, "-m", "headrace", "runner"), dict(os.environ)))
    frame = await runner.link.receive()
    print(os.getpid(), type(frame).__name__)
    await runner.close()

asyncio.run(main())
"""
NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


def test_runner_of_process_1_loads_its_project(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not permit a new PID namespace")
    project = tmp_path / "project.py"
    project.write_text(PROJECT)
    environment = {"PATH": "/usr/bin:/bin", "HEADRACE_PROJECT": str(project), "HEADRACE_HOME": str(tmp_path)}
    command = [*NAMESPACE, sys.executable, "-c", SUPERVISOR]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.stdout.split() == ["1", "ProjectLoaded"], done.stderr
