"""The processes of a deployment end if the test that started them is killed."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes.deployment import until

KILLED = """
import sys, time
from pathlib import Path
from support.processes.deployment import Deployment
with Deployment(Path(sys.argv[1])) as deployment:
    print(deployment.url, flush=True)
    time.sleep(600)
"""

KILLED_FIXTURE = """
import sys, time
from pathlib import Path
from headrace.testing.deployment import run_deployment
project = Path(sys.argv[1]) / "project.py"
project.write_text("from headrace import Project; project = Project('empty')")
with run_deployment(project, project.parent / "home") as deployment:
    print(deployment.url, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("script", [KILLED, KILLED_FIXTURE], ids=["deployment", "fixture"])
def test_processes_end_with_the_test_that_started_them(script: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        port = int(test.stdout.readline().rpartition(":")[2])
        test.send_signal(signal.SIGKILL)
    until(lambda: not _listens(port), "the api ends", 60)


def _listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0
