"""The folder of the demo, prepared for a new run or to resume one."""

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
    """Prepare `home`. Return its project file, and whether an earlier run is resumed.

    A finished run is deleted. An unfinished run is resumed, unless `fresh`.

    Raises:
        UsageError: The folder has other content, or an unfinished run with other parameters.
        ResourceError: The folder cannot be created.
    """
    manifest = Manifest.load(home)
    if home.is_dir() and any(home.iterdir()) and manifest is None and not (home / _MARK).exists():
        raise UsageError(f"{home} is not empty and is not a demo's folder.", hint="Name another: headrace demo --home DIR")
    try:
        if home.exists() and (fresh or (home / _DONE).exists()):
            shutil.rmtree(home)
            manifest = None
        if manifest is not None and manifest.parameters != parameters:
            raise UsageError(
                f"{home} holds an unfinished run with seed {manifest.parameters.seed} of {manifest.parameters.period}.",
                hint="Go on with the same seed and period, or throw it away: headrace demo --fresh",
            )
        return install_project(home), manifest is not None
    except OSError as error:
        raise ResourceError(f"The demo's folder {home} cannot be made ready: {error.strerror}.", hint="Name another: --home DIR") from error


def mark_done(home: Path, *, ok: bool) -> None:
    """Record the end of this run, so that the next one starts from the beginning."""
    (home / _DONE).write_text(json.dumps({"ok": ok}) + "\n")
