"""Connections and variables from the command line to the code of a trigger, and masked in every log, with real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from support.processes.deployment import Deployment, until

SECRET = "correct-horse-7"
TOKEN = "battery-staple-9"

PROJECT = """
import structlog
from headrace import BaseEventTrigger, Project, TriggerEvent, aget_connection, aget_variable, get_connection

class Asking(BaseEventTrigger):
    def __init__(self, name, fails=False):
        super().__init__()
        self.name, self.fails = name, fails

    def serialize(self):
        return f"{__name__}.Asking", {"name": self.name, "fails": self.fails}

    async def run(self):
        warehouse = await aget_connection("warehouse")
        token = await aget_variable("token")
        structlog.get_logger().warning("logging in", url=warehouse.url, token=token, deep={"password": [warehouse.password]})
        if self.fails:
            raise RuntimeError(f"cannot log in as {warehouse.login} with {warehouse.password} and {token}")
        blocked = "no"
        try:
            get_connection("not-fetched-yet")
        except Exception as error:
            blocked = str(error)
        region = await aget_variable("region", "nowhere")
        payload = {"host": warehouse.host, "right": token == "battery-staple-9", "region": region, "blocked": blocked}
        yield TriggerEvent(payload, id=self.name)

project = Project("asking")
project.trigger("well", Asking("well"))
project.trigger("badly", Asking("badly", fails=True))
"""


def piped(deployment: Deployment, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace", *arguments]
    return subprocess.run(command, input=text, env=deployment._environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.acceptance
def test_a_trigger_reads_secrets_that_output_and_files_do_not_contain(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment:
        made = piped(deployment, f"postgresql://ada:{SECRET}@db.example/flights\n", "connections", "set", "warehouse")
        assert (made.returncode, SECRET in made.stdout + made.stderr) == (0, False), made.stderr
        assert piped(deployment, TOKEN, "variables", "set", "token").returncode == 0
        assert deployment.cli("variables", "set", "region", "--plain", "--value", "eu").returncode == 0
        deployment.triggerer(deployment.project(PROJECT))
        until(lambda: deployment.rows("SELECT 1 FROM events"), "the trigger fires")
        until(lambda: deployment.rows("SELECT 1 FROM triggers WHERE name = 'badly' AND failure IS NOT NULL"), "the failure is told")
        (payload,) = deployment.rows("SELECT payload FROM events")[0]
        told = msgspec.json.decode(payload)
        assert "would block the loop" in told.pop("blocked")
        assert told == {"host": "db.example", "right": True, "region": "eu"}
        (failure,) = deployment.rows("SELECT failure FROM triggers WHERE name = 'badly'")[0]
        assert "cannot log in as ada with *** and ***" in failure

        shown = deployment.cli("connections", "list").stdout + deployment.cli("variables", "list").stdout
        assert "warehouse" in shown
        assert "***" in shown
        rotated = deployment.cli("secrets", "rotate")
        assert "0 encrypted with the first key, 5 already were, 0 unreadable." in rotated.stdout, rotated.stderr
        token = deployment.cli("tokens", "create", "--scope", "admin", "--expires", "1h").stdout.strip()
        deployment._environment |= {"HEADRACE_TOKEN": token, "HEADRACE_KEY": "not the key"}
        assert deployment.cli("connections", "remove", "warehouse").returncode == 0
        assert deployment.cli("connections", "show", "warehouse").returncode != 0
        wrong = deployment.cli("tokens", "create", "--expires", "2y")
        assert (wrong.returncode, "Invalid lifetime '2y'" in wrong.stderr) == (2, True)

    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "project.py"]
    assert len(kept) > 3
    for path in kept:
        assert SECRET.encode() not in path.read_bytes(), path
    for path in kept:
        assert TOKEN.encode() not in path.read_bytes() or "__pycache__" in path.parts, path


@pytest.mark.acceptance
@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--host", "::"]])
def test_an_exposed_api_server_does_not_start_without_a_key(tmp_path: Path, arguments: list[str]) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HEADRACE_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "headrace", "api", "--port", "0", *arguments]
    refused = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "deployment key is required" in refused.stderr
    assert not (tmp_path / "home").exists()
