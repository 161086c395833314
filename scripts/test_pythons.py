"""Run the unit tests on other versions of Python: python scripts/test_pythons.py 3.12 3.13

With --whole, run the contract and integration tests too. Each installed version has its own environment, `.venv-VERSION`, from the same
lock file. Missing versions are printed and skipped. Tests on brokers run on the first version only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".venv" / "bin" / "uv"
LOCK = ROOT / "requirements" / "dev.lock"
UNIT = ("tests/unit",)
WHOLE = (*UNIT, "tests/contracts", "tests/integration")
SELECTED = "not (acceptance or slow or spark or brokers)"


def main(arguments: list[str]) -> int:
    """Test on each version; return 1 if a suite failed on any of them."""
    versions = [argument for argument in arguments if argument != "--whole"]
    suites = WHOLE if "--whole" in arguments else UNIT
    failed = []
    for version in versions:
        python = interpreter(version)
        if python is None:
            print(f"· Python {version} is not installed: its tests are skipped.", flush=True)
            continue
        print(f"· Python {version}: {', '.join(suites)} …", flush=True)
        # Python 3.13 warns about an unclosed database at garbage collection, in an unrelated test: print the warning, do not fail the test
        lenient = ["-W", "default::pytest.PytestUnraisableExceptionWarning"]
        tests = ["-m", "pytest", "-q", *lenient, "-n", "4", "--dist", "loadgroup", "-m", SELECTED, *suites]
        if subprocess.run([environment(version, python), *tests], cwd=ROOT, check=False).returncode != 0:
            failed.append(version)
    if failed:
        print(f"error: tests failed on Python {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed else 0


def interpreter(version: str) -> str | None:
    """Return an installed interpreter of `version` that runs, from the path or from pyenv, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python{version}")))]
    # pyenv puts a `python3.13` into the path that fails unless that version is selected, so the script tries each
    query = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    for python in filter(None, candidates):
        result = subprocess.run([python, *query], capture_output=True, text=True, check=False)
        if result.stdout.strip() == version:
            return python
    return None


def environment(version: str, python: str) -> Path:
    """Create the environment of `version`, or update it if the lock has changed; return its interpreter."""
    folder = ROOT / f".venv-{version}"
    stamp, marker = hashlib.sha256(LOCK.read_bytes()).hexdigest(), folder / ".headrace-set-up"
    interpreter_path = folder / "bin" / "python"
    if not (marker.is_file() and marker.read_text() == stamp):
        quiet = [str(UV), "--quiet"]
        subprocess.run([*quiet, "venv", "--clear", "--python", python, folder], check=True)
        subprocess.run([*quiet, "pip", "sync", "--require-hashes", "--python", interpreter_path, LOCK], check=True)
        subprocess.run(
            [*quiet, "pip", "install", "--python", interpreter_path, "--no-deps", "--no-build-isolation", "--editable", ROOT], check=True
        )
        marker.write_text(stamp)
    return interpreter_path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
