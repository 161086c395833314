"""The files of `deploy/`: their commands parse, their settings exist, systemd accepts the units."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.settings import Settings
from support.command_lines import parse

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
GUIDE = ROOT / "docs" / "guides" / "production.md"
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
OTHERS = ("CONNECTION_", "VARIABLE_", "TEST_", "CONFIG")
EXECUTABLE = "/opt/headrace/bin/headrace"
VARIABLE = re.compile(r"\bHEADRACE_[A-Z_]+\b")


def values(unit: Path, name: str) -> list[str]:
    """Return the values of a directive of a unit."""
    return re.findall(rf"^{name}=(.*)$", unit.read_text("utf-8"), re.MULTILINE)


def test_there_is_a_unit_for_each_process() -> None:
    assert [unit.stem.removeprefix("headrace-") for unit in UNITS] == ["api", "pipeline", "receive", "triggerer", "worker"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_command_of_unit_parses(unit: Path) -> None:
    (command,) = values(unit, "ExecStart")
    executable, *words = shlex.split(command)
    assert executable == EXECUTABLE
    assert words[0] == unit.stem.removeprefix("headrace-")
    parse(words)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_stops_in_order_and_restarts(unit: Path) -> None:
    assert values(unit, "KillSignal") == ["SIGTERM"]
    assert values(unit, "KillMode") == ["mixed"]  # only the first process gets the signal
    assert values(unit, "Restart") == ["always"]
    assert values(unit, "RestartPreventExitStatus") == ["2"]
    assert int(values(unit, "TimeoutStopSec")[0]) >= 30


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text("utf-8").replace(EXECUTABLE, shutil.which("true") or "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / unit.name) for unit in UNITS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "headrace" in line]) == (0, [])


@pytest.mark.parametrize("path", [path for path in DEPLOY.rglob("*") if path.is_file()] + PAGES, ids=lambda path: path.name)
def test_settings_in_pages_and_deploy_files_exist(path: Path) -> None:
    """Of the files of `deploy/`, the documentation and the README."""
    named = {name.removeprefix("HEADRACE_") for name in VARIABLE.findall(path.read_text("utf-8"))}
    assert {name.lower() for name in named if not name.startswith(OTHERS)} <= Settings.model_fields.keys()


def test_commands_of_compose_parse() -> None:
    commands = [json.loads(text) for text in re.findall(r"^    command: (.*)$", (DEPLOY / "compose.yaml").read_text("utf-8"), re.MULTILINE)]
    assert [words[0] for words in commands] == ["api", "triggerer", "pipeline"]
    for words in commands:
        parse(words)


def test_dockerfile_copies_files_of_the_repository_and_names_no_registry() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source.partition('/')[0]}" in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    images = re.findall(r"^FROM (\S+)", text, re.MULTILINE) + re.findall(
        r"^ +image: (\S+)", (DEPLOY / "compose.yaml").read_text("utf-8"), re.MULTILINE
    )
    assert all(re.fullmatch(r"[a-z]+(:[\w.-]+)?", image) for image in images), images
    assert 'ENTRYPOINT ["tini", "--", "headrace"]' in text


def test_guide_quotes_units_unchanged() -> None:
    quoted = re.findall(r"^```ini\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert quoted
    for block in quoted:
        assert any(block in unit.read_text("utf-8") for unit in UNITS)
