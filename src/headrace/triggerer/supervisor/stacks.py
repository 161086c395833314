"""The stack of a blocked process, cut down to what its reader can change. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PACKAGE: Final = f"{Path(__file__).resolve().parents[2]}/"
_CALLERS: Final = ("engine/", "streams/", "standalone/", "cli/", "wiring/processes.py")
_FILE: Final = re.compile(r'^File "([^"]*)"')


def users_frames(stack: Sequence[str]) -> list[str]:
    """Return the frames of users' code and of what that calls, innermost first; the whole `stack` where there are none.

    What calls users' code (Headrace, asyncio, the command line) is left out.
    """
    kept: list[str] = []
    for line in stack:
        found = _FILE.match(line)
        path = found.group(1) if found else ""
        if path.startswith(_PACKAGE):
            if path.removeprefix(_PACKAGE).startswith(_CALLERS):
                break
            continue
        kept.append(line)
    else:
        return list(stack)
    return kept or list(stack)
