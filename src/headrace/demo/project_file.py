"""The demo's project file, the first example for users."""

from __future__ import annotations

from pathlib import Path

from headrace.durable_files import replace_file
from headrace.errors import ResourceError


def project_source() -> Path:
    """Return the example project's file: the copy in the installed package, or the one in the source tree."""
    packaged = Path(__file__).with_name("flights_project.py")
    in_tree = Path(__file__).parents[3] / "examples" / "flights" / "project.py"
    for path in (packaged, in_tree):
        if path.is_file():
            return path
    raise ResourceError("The demo's project file is not installed.", hint="Install Headrace again: pip install --force-reinstall headrace")


def install_project(home: Path) -> Path:
    """Copy the project file into `home`, beside its feed folder, and return its path there."""
    installed = home / "project.py"
    (home / "feed").mkdir(parents=True, exist_ok=True)
    text = project_source().read_bytes()
    if not installed.exists() or installed.read_bytes() != text:
        replace_file(installed, text)
    return installed
