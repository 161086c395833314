from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext, cloudpickle

from headrace.pipeline.spark.code_shipping import PYTHON_DAEMON, send_to_executors, ship_functions


def sent(folders: list[Path], work: Path) -> list[Path]:
    """Return the archives that executors get."""
    archives: list[str] = []
    send_to_executors(cast(SparkContext, SimpleNamespace(addPyFile=archives.append)), folders, work)
    return [Path(archive) for archive in archives]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    for name in (
        "shipped_main.py",
        "beside.py",
        "shipped_pack/__init__.py",
        "shipped_pack/flows.py",
        "shipped_pack/names.csv",
        "feed/old.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("def run():\n    pass\n" if name.endswith(".py") else "x")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    return folder


def functions(*modules: str) -> list[Any]:
    for module in modules:
        __import__(module)
    return [sys.modules[module].run for module in modules]


def test_the_folder_on_the_import_path_is_sent_with_its_modules_and_packages(project: Path, tmp_path: Path) -> None:
    folders = ship_functions(functions("shipped_main", "shipped_pack.flows"))
    assert folders == [project]
    daemon, *archives = sent(folders, tmp_path)
    assert daemon.name == f"{PYTHON_DAEMON}.py"
    assert daemon.is_file()
    ours, theirs = (zipfile.ZipFile(path).namelist() for path in archives)
    assert "headrace/pipeline/spark/code_shipping.py" in ours
    assert not [name for name in ours if not name.startswith("headrace/") or "__pycache__" in name]
    assert theirs == ["beside.py", "shipped_main.py", "shipped_pack/__init__.py", "shipped_pack/flows.py", "shipped_pack/names.csv"]


def test_functions_from_a_shell_have_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, pickler = ModuleType("typed"), cast(Any, cloudpickle)
    exec("def run(frame): return frame", vars(shell))
    monkeypatch.setitem(sys.modules, "typed", shell)
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert ship_functions([shell.run]) == []
    again = subprocess.run(
        [sys.executable, "-c", "import sys, pickle; print(pickle.load(sys.stdin.buffer)(7))"],
        input=pickler.dumps(shell.run),
        capture_output=True,
        check=True,
    )
    assert again.stdout.strip() == b"7"
    pickler.unregister_pickle_by_value(shell)


def test_installed_packages_are_not_sent(tmp_path: Path) -> None:
    assert [path.name for path in sent([Path(sysconfig.get_paths()["purelib"])], tmp_path)] == [f"{PYTHON_DAEMON}.py", "headrace.zip"]
