"""`headrace` in the folder of a project finds the API server that runs there, on any port (first-use, friction 4)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from headrace.run_files import API, read_run_file
from headrace.settings import read_settings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "headrace.toml").write_text('home = ".headrace"\n')
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    return tmp_path


@contextmanager
def api(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run an api on any free port until its first answer, and end it."""
    with (folder / "api.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "headrace", "api", "--port", "0"], cwd=folder, stdout=log, stderr=log)
    try:
        while (record := read_run_file(folder / ".headrace" / API)) is None or record.facts.get("pid") != process.pid:
            assert process.poll() is None, (folder / "api.log").read_text()
        with httpx.Client(transport=httpx.HTTPTransport(retries=20, verify=False)) as client:
            assert client.get(record.facts["url"] + "/healthz", timeout=60).is_success
        yield process
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
def test_a_command_calls_the_api_server_of_its_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default = "http://127.0.0.1:8642"
    assert read_settings(api_url=None).url == default
    with api(folder) as process:
        url = read_settings(api_url=None).url
        assert url != default
        assert read_settings(api_url="http://127.0.0.1:9").url == "http://127.0.0.1:9"
        assert read_settings(home=folder / "other", api_url=None).url == default
        assert read_settings().url == default  # whoever serves an api is no client of one
        monkeypatch.setenv("HEADRACE_API_URL", "http://127.0.0.1:10")
        assert read_settings(api_url=None).url == "http://127.0.0.1:10"
        monkeypatch.delenv("HEADRACE_API_URL")
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        assert read_settings(api_url=None).url == default  # the record is stale
    with api(folder):
        url = read_settings(api_url=None).url
        alerts = httpx.get(f"{url}/api/v1/status", timeout=60).json()["alerts"]
    assert [(alert["severity"], alert["about"]) for alert in alerts] == [("warning", "process:api")]
