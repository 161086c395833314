"""A real receiver on loopback: `headrace receive` in a process of its own, with the upstreams of a project file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from support.processes.ports import free_port

START_SECONDS = 60.0
STOP_SECONDS = 60.0
NO_API = "http://127.0.0.1:9"


class Receiver:
    """A receiver that can be killed and started again on its port."""

    def __init__(self, folder: Path, upstreams: str, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "receiver.log"
        self._environment = dict(environment)
        project = f"from headrace import Http, Project\nproject = Project('inbox')\nfor n, one in enumerate([{upstreams}]):\n"
        (folder / "project.py").write_text(f"{project}    project.watch(f'watch{{n}}', one)\n")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, and wait until it listens."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        python_path = os.pathsep.join(filter(None, sys.path))
        own = {
            "HEADRACE_HOME": str(self.folder / "home"),
            "HEADRACE_API_URL": NO_API,
            "HEADRACE_LOG_FORMAT": "json",
            "PYTHONPATH": python_path,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "receive", "--project", "project.py", "--port", str(self.port)],
                cwd=self.folder,
                env=clean | own | self._environment,
                stderr=log,
                stdout=log,
            )
        until = time.monotonic() + START_SECONDS
        while True:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            try:
                httpx.get(f"{self.url}/nothing", trust_env=False, verify=False)
            except httpx.TransportError:
                time.sleep(0.02)
            else:
                return

    def wait_until_healthy(self) -> None:
        """Wait until every endpoint has its secrets."""
        until = time.monotonic() + START_SECONDS
        while httpx.get(f"{self.url}/health", trust_env=False, verify=False).status_code != 200:
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal to the process, and return its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)

    def resident_bytes(self) -> int:
        """Return the resident memory of the process."""
        assert self.process is not None
        match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert match is not None
        return int(match[1]) * 1024


@contextmanager
def receiving(folder: Path, upstreams: str, **environment: str) -> Iterator[Receiver]:
    """Run a receiver of these upstreams, Python expressions separated by commas, until the block ends."""
    receiver = Receiver(folder, upstreams, environment)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop(signal.SIGKILL)
