"""A class path in a workload imports only modules that are allowed for triggers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import ProjectError
from headrace.project import Project, load_project
from headrace.settings import read_settings
from headrace.sources.memory.upstream import Memory
from headrace.triggerer.user_process.loader import load_trigger
from headrace.triggers.import_allowlist import IMPORT_ALLOWLIST
from headrace.triggers.upstream import load_upstream
from headrace.wire.control.triggers import RunTrigger
from headrace.wiring.project import read_project

PROJECT = """
from headrace import BaseEventTrigger, Project

class Mine(BaseEventTrigger):
    def serialize(self):
        return f"{__name__}.Mine", {}

    async def run(self):
        yield

project = Project("mine")
project.trigger("mine", Mine())
"""
NAMES = ("beside", "armed", "headrace_project_project", "elsewhere_entirely")


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "project.py").write_text(PROJECT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    read_project(read_settings(project=tmp_path / "project.py", allowed_modules="json.decoder, elsewhere_entirely"))
    yield
    IMPORT_ALLOWLIST.any()
    for name in NAMES:
        sys.modules.pop(name, None)


def workload(classpath: str, **kwargs: object) -> RunTrigger:
    return RunTrigger(
        trigger_id=1, name="forged", classpath=classpath, kwargs=kwargs, stream=None, queue="default", epoch=1, log_name="x.log"
    )


@pytest.mark.parametrize(
    "classpath",
    [
        "os.system",
        "subprocess.Popen",
        "antigravity.Trigger",
        "this.Trigger",
        "json.Trigger",
        "headrace_evil.Trigger",
        "os",
        "",
        ".x",
        "..x.Y",
    ],
)
def test_a_module_outside_the_project_is_rejected_and_not_imported(classpath: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(sys.modules)
    with pytest.raises(ProjectError, match="in a module that is not allowed") as refused:
        load_trigger(workload(classpath, args=["true"]))
    assert "HEADRACE_ALLOWED_MODULES" in (refused.value.hint or "")
    assert set(sys.modules) == before
    assert capsys.readouterr().out == ""
    with pytest.raises(ProjectError, match="in a module that is not allowed"):
        load_upstream(classpath, {})


def test_an_upstream_within_a_watch_is_checked() -> None:
    forged = {"classpath": "subprocess.Popen", "kwargs": {"args": ["true"]}}
    with pytest.raises(ProjectError, match="in a module that is not allowed"):
        load_trigger(workload("headrace.triggers.watch.WatchTrigger", upstream=forged))


@pytest.mark.parametrize(
    "classpath", ["headrace.core.ledger.ledger.Ledger", "headrace.errors.HeadraceError", "headrace.triggers.base.has_acks"]
)
def test_a_class_that_is_not_a_trigger_is_rejected(classpath: str) -> None:
    with pytest.raises(ProjectError, match="not a subclass of BaseTrigger"):
        load_trigger(workload(classpath))


def test_triggers_of_the_project_are_allowed(tmp_path: Path) -> None:
    assert type(load_trigger(workload("headrace_project_project.Mine"))).__name__ == "Mine"
    (tmp_path / "beside.py").write_text(PROJECT.replace("project", "other"))
    assert type(load_trigger(workload("beside.Mine"))).__name__ == "Mine"


def test_a_library_module_with_the_name_of_a_project_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "subprocess.py").write_text("raise SystemExit")
    with pytest.raises(ProjectError, match="in a module that is not allowed"):
        load_trigger(workload("subprocess.Popen", args=["true"]))


def test_modules_in_the_settings_are_allowed_but_not_modules_with_the_same_prefix() -> None:
    IMPORT_ALLOWLIST.check("elsewhere_entirely.Trigger", "it")
    IMPORT_ALLOWLIST.check("elsewhere_entirely.below.Trigger", "it")
    IMPORT_ALLOWLIST.check("json.decoder.JSONDecoder", "it")
    for classpath in ("elsewhere_entirely2.Trigger", "json.encoder.JSONEncoder", "json.JSONDecoder"):
        with pytest.raises(ProjectError):
            IMPORT_ALLOWLIST.check(classpath, "it")


def test_a_project_names_the_modules_of_its_triggers_and_upstreams(tmp_path: Path) -> None:
    project = Project("p")
    project.watch("w", Memory("m"))
    assert project.modules() == {"headrace.triggers.watch", "headrace.sources.memory.upstream"}
    assert load_project(tmp_path / "project.py").modules() == {"headrace_project_project"}


def test_a_class_within_a_function_is_rejected_at_its_declaration(tmp_path: Path) -> None:
    nested = PROJECT.replace('f"{__name__}.Mine"', '"x.make.<locals>.Mine"')
    (tmp_path / "armed.py").write_text(nested)
    with pytest.raises(ProjectError, match="cannot be written down"):
        load_project(tmp_path / "armed.py")
