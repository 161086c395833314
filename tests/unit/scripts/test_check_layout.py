"""The layout check finds folders, files, prefixes and tests that break its rules, and its exceptions only shrink."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.check_layout import MAX_LINES, MAX_MODULES, load_exceptions, main


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for module in ("__init__", "lorry", "parcel", "depot"):
        write(tmp_path / f"src/headrace/{module}.py")
    write(tmp_path / "tests/unit/test_lorry.py")
    write(tmp_path / "scripts/layout.toml", "limit = 0\n")
    return tmp_path


def write(file: Path, text: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def errors(project: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    code = main([f"--root={project}"])
    lines = capsys.readouterr().err.splitlines()
    assert code == bool(lines)
    return lines


def test_a_project_that_follows_the_rules_passes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert errors(project, capsys) == []


@pytest.mark.parametrize("number", [1, 2, MAX_MODULES + 1])
def test_a_folder_with_too_few_or_too_many_modules_fails(project: Path, capsys: pytest.CaptureFixture[str], number: int) -> None:
    write(project / "CONTRIBUTING.md", "`fleet/`")
    write(project / "src/headrace/fleet/__init__.py")
    for index in range(number):
        write(project / f"src/headrace/fleet/{'abcdefghijklmnop'[index]}.py")
    (error,) = errors(project, capsys)
    assert f"src/headrace/fleet has {number} modules" in error


@pytest.mark.parametrize(
    ("folder", "module", "fails"), [("sources", "producer", False), ("sources", "queue", True), ("fleet", "producer", True)]
)
def test_two_modules_suffice_for_a_broker(project: Path, capsys: pytest.CaptureFixture[str], folder: str, module: str, fails: bool) -> None:
    write(project / "CONTRIBUTING.md", f"`{folder}/`")
    for path in ("__init__", "a", "b", "c", "nats/__init__", "nats/upstream", f"nats/{module}"):
        write(project / f"src/headrace/{folder}/{path}.py")
    assert bool(errors(project, capsys)) is fails


def test_a_file_of_too_many_lines_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project / "src/headrace/lorry.py", "\n" * MAX_LINES)
    assert errors(project, capsys) == []
    write(project / "src/headrace/lorry.py", "\n" * (MAX_LINES + 1))
    (error,) = errors(project, capsys)
    assert "src/headrace/lorry.py has 401 lines" in error


def test_a_prefix_of_three_modules_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project / "src/headrace/lorry_door.py")
    assert errors(project, capsys) == []
    write(project / "src/headrace/lorry_wheel.py")
    (error,) = errors(project, capsys)
    assert "src/headrace/lorry_* is the prefix of 3 modules" in error


def test_a_test_mirrors_a_module_a_folder_or_a_script(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project / "CONTRIBUTING.md", "`yard/`")
    for module in ("__init__", "gate", "bay", "ramp"):
        write(project / f"src/headrace/yard/{module}.py")
    write(project / "scripts/check_tyres.py")
    for test in ("test_lorry_at_night", "test_yard", "yard/test_bay", "scripts/test_check_tyres"):
        write(project / f"tests/unit/{test}.py")
    assert errors(project, capsys) == []


@pytest.mark.parametrize("test", ["test_driver", "test_lorries", "yard/test_lorry", "scripts/test_lorry"])
def test_a_test_without_its_module_fails(project: Path, capsys: pytest.CaptureFixture[str], test: str) -> None:
    write(project / f"tests/unit/{test}.py")
    (error,) = errors(project, capsys)
    assert f"tests/unit/{test}.py mirrors no module" in error


def test_an_exception_allows_its_size_and_no_more(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project / "scripts/layout.toml", 'limit = 1\n[lines]\n"src/headrace/lorry.py" = { limit = 410, why = "a table" }\n')
    write(project / "src/headrace/lorry.py", "\n" * 410)
    assert errors(project, capsys) == []
    write(project / "src/headrace/lorry.py", "\n" * 411)
    (error,) = errors(project, capsys)
    assert "allows 410" in error


def test_an_exception_that_no_longer_applies_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project / "scripts/layout.toml", 'limit = 1\n[tests]\n"tests/unit/test_lorry.py" = { why = "old" }\n')
    (error,) = errors(project, capsys)
    assert "needs no exception any more" in error


def test_an_exception_for_more_modules_than_the_folder_has_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project / "CONTRIBUTING.md", "`yard/`")
    for module in ("__init__", *"abcdefghijklmn"):
        write(project / f"src/headrace/yard/{module}.py")
    write(project / "scripts/layout.toml", 'limit = 1\n[modules]\n"src/headrace/yard" = { limit = 15, why = "commands" }\n')
    (error,) = errors(project, capsys)
    assert "has 14 modules. Lower" in error


@pytest.mark.parametrize(("limit", "action"), [(0, "do not raise"), (2, "Lower")])
def test_the_number_of_exceptions_equals_the_declared_number(
    project: Path, capsys: pytest.CaptureFixture[str], limit: int, action: str
) -> None:
    write(project / "tests/unit/test_driver.py")
    write(project / "scripts/layout.toml", f'limit = {limit}\n[tests]\n"tests/unit/test_driver.py" = {{ why = "drives" }}\n')
    (error,) = errors(project, capsys)
    assert action in error


def test_the_guide_names_paths_that_exist_and_every_folder(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project / "src/headrace/yard/__init__.py")
    for module in "abc":
        write(project / f"src/headrace/yard/{module}.py")
    write(project / "CONTRIBUTING.md", "`src/headrace/lorry.py`, `src/headrace/<folder>/x.py`, [a](docs/gone.md)")
    missing, unnamed = errors(project, capsys)
    assert "docs/gone.md is named in CONTRIBUTING.md but does not exist" in missing
    assert "src/headrace/yard is not in the layout" in unnamed


def test_an_exception_without_a_reason_is_an_error(project: Path) -> None:
    write(project / "scripts/layout.toml", 'limit = 1\n[tests]\n"tests/unit/test_driver.py" = {}\n')
    with pytest.raises(SystemExit, match="test_driver"):
        load_exceptions(project / "scripts/layout.toml")
