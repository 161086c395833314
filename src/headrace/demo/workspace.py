"""The demo's folder: made ready for a new run, or for going on with one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

from headrace.demo.feed.manifest import Manifest, Parameters
from headrace.demo.project_file import install_project
from headrace.errors import ResourceError, UsageError

_DONE: Final = "demo-done.json"
_MARK: Final = "project.py"


def prepare(home: Path, parameters: Parameters, *, fresh: bool) -> tuple[Path, bool]:
    """Make `home` ready; return the project file in it, and whether an earlier run goes on.

    A finished run is thrown away. An unfinished one goes on, unless `fresh`.

    Raises:
        UsageError: The folder holds something else, or an unfinished run with other parameters.
        ResourceError: The folder cannot be made.
    """
    found = Manifest.load(home)
    if home.is_dir() and any(home.iterdir()) and found is None and not (home / _MARK).exists():
        raise UsageError(f"{home} is not empty and is not a demo's folder.", hint="Name another: headrace demo --home DIR")
    try:
        if home.exists() and (fresh or (home / _DONE).exists()):
            shutil.rmtree(home)
            found = None
        if found is not None and found.parameters != parameters:
            raise UsageError(
                f"{home} holds an unfinished run with seed {found.parameters.seed} of {found.parameters.period}.",
                hint="Go on with the same seed and period, or throw it away: headrace demo --fresh",
            )
        return install_project(home), found is not None
    except OSError as error:
        raise ResourceError(f"The demo's folder {home} cannot be made ready: {error.strerror}.", hint="Name another: --home DIR") from error


def mark_done(home: Path, *, ok: bool) -> None:
    """Remember that this run has come to its end, so that the next one starts again."""
    (home / _DONE).write_text(json.dumps({"ok": ok}) + "\n")
