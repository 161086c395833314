"""Identify the code of a pipeline: by the commit of its file, or else by a digest of its function."""

from __future__ import annotations

import inspect
import os
import subprocess
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

GIT_SECONDS: Final = 5.0
DIGEST_BYTES: Final = 8
_UNNAMED: Final = "<string>"
"""The file of code from `exec`. From Python 3.13 on, its source would be that of `python -c`."""


def code_of(function: Callable[..., Any]) -> str:
    """Return the version of the code of a pipeline's function.

    It is `commit HEX` if Git tracks the function's file and no tracked file differs from that commit. Otherwise it is `function HEX`, a
    digest of the function's source, or an empty text if Python has no source. A process asks Git once for each file.
    """
    function = inspect.unwrap(function)
    try:
        file = inspect.getsourcefile(function)
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return ""
    if file == _UNNAMED:
        return ""
    commit = None if file is None else _commit_of(Path(file))
    return f"commit {commit}" if commit else f"function {blake2b(source.encode(), digest_size=DIGEST_BYTES).hexdigest()}"


@cache
def _commit_of(file: Path) -> str | None:
    """Return the commit that the work tree of a tracked file is equal to, or None."""
    tracked = _git(file.parent, "ls-files", "--error-unmatch", "--", file.name)
    status = _git(file.parent, "status", "--porcelain=v2", "--branch", "--untracked-files=no") if tracked is not None else None
    lines = status.splitlines() if status is not None else []
    commits = [line.split()[2] for line in lines if line.startswith("# branch.oid ")]
    is_clean = all(line.startswith("# ") for line in lines)
    return commits[0] if commits and is_clean else None


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a command of Git, or None if it fails, is not installed, or takes longer than GIT_SECONDS."""
    command = ["git", "-C", str(folder), *arguments]
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}  # it must not write the index of the user's repository
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, check=False, env=environment)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return completed.stdout if completed.returncode == 0 else None
