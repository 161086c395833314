"""Reduce the stack of a blocked process to the frames that its reader can change. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PACKAGE: Final = f"{Path(__file__).resolve().parents[2]}/"
_CALLERS: Final = ("triggerer/", "streams/", "process/", "cli/", "wiring/")
_FILE: Final = re.compile(r'^File "([^"]*)"')


def users_frames(stack: Sequence[str]) -> list[str]:
    """Return the frames of users' code and of its callees, innermost first, or the whole `stack` if there are none.

    The callers of users' code (Headrace, asyncio, the command line) are left out.
    """
    frames: list[str] = []
    for line in stack:
        match = _FILE.match(line)
        path = match.group(1) if match else ""
        if path.startswith(_PACKAGE):
            if path.removeprefix(_PACKAGE).startswith(_CALLERS):
                break
            continue
        frames.append(line)
    else:
        return list(stack)
    return frames or list(stack)
