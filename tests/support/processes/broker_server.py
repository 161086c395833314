"""Real servers on loopback that a script of `scripts/brokers` starts, for tests with the mark `brokers`.

`make setup-brokers` installs them below `.brokers`. A server ends with the process that started it, however that ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts" / "brokers"
SECONDS = 60.0


class BrokerServer:
    """One server. Its address stays the same over `kill` and `start`.

    `script` is the name of its script, `folder` has its data, and `settings` are variables of the script.
    """

    def __init__(self, script: str, *, folder: Path | None = None, **settings: str) -> None:
        self.close_seconds = SECONDS
        self._script = str(SCRIPTS / f"{script}.sh")
        self._folder = folder or Path(tempfile.mkdtemp(prefix=f"headrace-{script}-"))
        # The scripts start Python for their ports, and a version manager's `python3` takes several times as long.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = os.environ | {"PATH": path, "HEADRACE_BROKER_DATA": str(self._folder)} | settings
        self._guard = self._guarded()
        self.address = self.start()

    def start(self) -> str:
        """Start it, wait until it answers, and return its address."""
        return self._run("start").strip()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._run("kill")

    def restart(self) -> None:
        """Stop and start it in order."""
        self._run("stop")
        self._run("start")

    def close(self) -> None:
        """End it and remove its data."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(self.close_seconds)

    def _run(self, *command: str) -> str:
        completed = subprocess.run(
            [self._script, *command], env=self._environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def _guarded(self) -> subprocess.Popen[bytes]:
        """Start what ends the server and removes its data when this process has ended: it waits for the end of a pipe."""
        script = ["/bin/sh", "-c", 'cat; "$0" kill; "$0" wipe; rm -rf "$1"', self._script, str(self._folder)]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(script, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True, env=self._environment)


def connection_variable(name: str) -> str:
    """Return the environment variable of a connection."""
    return f"HEADRACE_CONNECTION_{name.upper()}"


def require_server(name: str, installed: str | None = None, *, library: str | None = None, program: str | None = None) -> None:
    """Skip the test, or fail it in CI, where the server below `.brokers`, a library or a program is missing."""
    missing = None
    if library is not None and find_spec(library) is None:
        missing = f"{library} is not installed: run `make setup-dev`."
    elif installed is not None and not is_installed(installed):
        missing = f"{name} is not installed: run `make setup-brokers`."
    elif program is not None and shutil.which(program) is None:
        missing = f"{program} is not installed."
    if missing is not None:
        skip_or_fail(missing)


def is_installed(path: str) -> bool:
    """Return whether `make setup-brokers` has installed a server."""
    return installed(path).exists()


def installed(path: str) -> Path:
    """Return where `make setup-brokers` installs a server."""
    return Path(os.environ.get("HEADRACE_BROKERS", ROOT / ".brokers")) / path


def skip_or_fail(missing: str) -> None:
    """Skip the test, or fail it in CI, with what is missing."""
    if os.environ.get("HEADRACE_REQUIRE_BROKERS"):
        pytest.fail(missing)
    pytest.skip(missing)


def java() -> str:
    """Return the program that runs Java."""
    return os.environ.get("JAVA", "java")
