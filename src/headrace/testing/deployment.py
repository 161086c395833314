"""A local deployment for end-to-end tests: `headrace standalone` as a child process."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from headrace.client.admin.client import AdminClient
from headrace.process.child import LIFELINE
from headrace.run_files import STANDALONE, read_run_file
from headrace.wire.calls import admin as calls

START_TIMEOUT_SECONDS: Final = 90.0
STOP_TIMEOUT_SECONDS: Final = 30.0
WAIT_TIMEOUT_SECONDS: Final = 90.0
POLL_SECONDS: Final = 0.05
_SECRETS: Final = ("HEADRACE_CONNECTION_", "HEADRACE_VARIABLE_")


class RunningDeployment:
    """A running deployment: API server, triggerer and pipeline of one project.

    `url` is the API's, `home` the home folder, `key` the deployment key, `log` the file with the output of all processes.
    """

    def __init__(self, url: str, home: Path, key: str, log: Path, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.home = home
        self.key = key
        self.log = log
        self._process = process

    @property
    def tables(self) -> Path:
        """The folder of the tables."""
        return self.home / "tables"

    def status(self) -> Any:
        """Return the status of the deployment, as the admin API has it."""
        with AdminClient(self.url) as client:
            return client.get(calls.GET_STATUS)

    def events(self, limit: int = 1_000) -> list[dict[str, Any]]:
        """Return the newest events of the log, newest first."""
        with AdminClient(self.url) as client:
            return list(client.get(calls.LIST_EVENTS, {"limit": limit})["events"])

    def dead_letters(self) -> list[dict[str, Any]]:
        """Return the dead letters of raw events, newest first."""
        with AdminClient(self.url) as client:
            return list(client.get(calls.LIST_DEAD_LETTERS)["dead_letters"])

    def wait_until(self, condition: Callable[[], Any], timeout: float = WAIT_TIMEOUT_SECONDS) -> Any:
        """Return the first true value of `condition`, which is called again and again.

        Raises:
            ChildProcessError: The deployment ended.
            TimeoutError: There was none within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            if self._process.poll() is not None:
                raise ChildProcessError(f"The deployment ended with code {self._process.returncode}. Its output is in {self.log}.")
            if time.monotonic() > deadline:
                raise TimeoutError(f"The condition was not true within {timeout:g} s. The output of the deployment is in {self.log}.")
            time.sleep(POLL_SECONDS)
        return value


@contextmanager
def run_deployment(project: Path, home: Path, settings: Mapping[str, object] | None = None) -> Iterator[RunningDeployment]:
    """Start `headrace standalone` on a free port, and stop it with all its processes at the end.

    `settings` are names of settings, such as `lookback`, with their values. HEADRACE_* variables of this process do not apply, except
    connections and variables. The deployment also ends when this process dies.

    Raises:
        ChildProcessError: The deployment does not start.
        TimeoutError: The API did not respond within START_TIMEOUT_SECONDS.
    """
    home.mkdir(parents=True, exist_ok=True)
    key = secrets.token_urlsafe(32)
    log = home / "deployment.log"
    reading, writing = os.pipe()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "standalone"],
            stdin=reading,
            stdout=output,
            stderr=output,
            env=_environment(project, home, key, settings or {}),
            cwd=project.parent,
            start_new_session=True,
        )
    os.close(reading)
    try:
        yield _started(process, home, key, log)
    finally:
        _stop(process)
        os.close(writing)


def _environment(project: Path, home: Path, key: str, settings: Mapping[str, object]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_") or name.startswith(_SECRETS)}
    own = {"home": home.absolute(), "project": project.absolute(), "port": 0, "key": key, "master": "local[2]", **settings}
    return inherited | {f"HEADRACE_{name.upper()}": str(value) for name, value in own.items()} | {LIFELINE: "stdin"}


def _started(process: subprocess.Popen[bytes], home: Path, key: str, log: Path) -> RunningDeployment:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        if process.poll() is not None:
            raise ChildProcessError(f"The deployment does not start:\n{log.read_text(errors='replace')}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"The API did not respond within {START_TIMEOUT_SECONDS:g} s:\n{log.read_text(errors='replace')}")
        record = read_run_file(home / STANDALONE)
        if record is not None and record.alive and _responds(url := str(record.facts.get("url"))):
            return RunningDeployment(url, home, key, log, process)
        time.sleep(POLL_SECONDS)


def _responds(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False).is_success
    except httpx.TransportError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the deployment as Ctrl-C does, or kill it after STOP_TIMEOUT_SECONDS. Its processes end with it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
