"""The version of a pipeline's code: the commit of a clean repository, or else a digest of the function."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import wraps
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline.runs import code_version
from headrace.pipeline.runs.code_version import code_of

SOURCE = "def totals(orders):\n    return orders\n"
NUMBERS = count()


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask Git again in each test, with an identity for commits, and without the settings of this machine."""
    code_version._commit_of.cache_clear()
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ada@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", "/")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, *names: str) -> str:
    """Commit files to a new repository, and return the commit."""
    git(folder, "init", "--quiet")
    git(folder, "add", *names)
    git(folder, "commit", "--quiet", "--message", "first")
    return git(folder, "rev-parse", "HEAD")


def imported(path: Path) -> Callable[..., Any]:
    """Return the function of a file, imported under a name of its own."""
    code_version._commit_of.cache_clear()
    spec = spec_from_file_location(f"project_{next(NUMBERS)}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] = module.totals
    return function


def written(path: Path, source: str) -> Callable[..., Any]:
    path.write_text(source)
    return imported(path)


def test_a_clean_repository_has_its_commit(tmp_path: Path) -> None:
    function = written(tmp_path / "project.py", SOURCE)
    commit = repository(tmp_path, "project.py")
    code_version._commit_of.cache_clear()
    assert code_of(function) == f"commit {commit}"
    (tmp_path / "notes.txt").write_text("untracked")
    assert code_of(imported(tmp_path / "project.py")) == f"commit {commit}"


def test_a_changed_file_of_the_repository_leaves_the_digest_of_the_function(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("RATE = 1\n")
    without = code_of(written(tmp_path / "project.py", SOURCE))
    repository(tmp_path, "project.py", "helper.py")
    (tmp_path / "helper.py").write_text("RATE = 2\n")
    assert code_of(imported(tmp_path / "project.py")) == without
    assert without.startswith("function ")


def test_an_untracked_file_and_an_empty_repository_have_no_commit(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(SOURCE)
    git(tmp_path, "init", "--quiet")
    assert code_of(written(tmp_path / "project.py", SOURCE)).startswith("function ")
    repository(tmp_path, "other.py")
    assert code_of(imported(tmp_path / "project.py")).startswith("function ")


def test_the_digest_follows_the_function_and_not_its_file(tmp_path: Path) -> None:
    first = code_of(written(tmp_path / "a.py", SOURCE))
    assert code_of(written(tmp_path / "b.py", f"# moved\n\n{SOURCE}")) == first
    assert code_of(written(tmp_path / "c.py", SOURCE.replace("return orders", "return orders.distinct()"))) != first


def test_a_machine_without_git_has_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function = written(tmp_path / "project.py", SOURCE)
    repository(tmp_path, "project.py")
    code_version._commit_of.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_of(function).startswith("function ")


def test_a_wrapped_function_is_that_of_the_user(tmp_path: Path) -> None:
    function = written(tmp_path / "project.py", SOURCE)

    @wraps(function)
    def wrapper(orders: Any) -> Any:
        return function(orders)

    assert code_of(wrapper) == code_of(function)


def test_a_function_without_source_has_no_version() -> None:
    names: dict[str, Any] = {}
    exec(SOURCE, names)
    assert code_of(names["totals"]) == ""
    assert code_of(len) == ""
