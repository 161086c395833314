"""Of a stack only what a user wrote, and what that calls, is shown."""

from __future__ import annotations

from pathlib import Path

import headrace
from headrace.triggerer.supervisor.stacks import users_frames

PACKAGE = Path(headrace.__file__).parent


def frame(path: str, line: int, name: str) -> str:
    return f'File "{path}", line {line} in {name}'


OURS = [
    frame(f"{PACKAGE}/engine/trigger_executor.py", 150, "_turn"),
    frame(f"{PACKAGE}/engine/pulse.py", 99, "send"),
    frame("/usr/lib/python3.11/asyncio/runners.py", 118, "run"),
    frame(f"{PACKAGE}/cli/processes.py", 121, "runner"),
    frame("/site-packages/typer/main.py", 700, "wrapper"),
]
THEIRS = [frame("/usr/lib/python3.11/re/__init__.py", 176, "search"), frame("/home/me/project.py", 12, "handle")]


def test_what_calls_users_code_and_what_is_between_is_left_out() -> None:
    between = frame(f"{PACKAGE}/triggers/base.py", 72, "filter_shared_stream")
    above = frame("/home/me/project.py", 5, "filter_shared_stream")
    assert users_frames([*THEIRS, between, above, *OURS]) == [*THEIRS, above]


def test_where_no_frame_is_the_users_all_are_shown() -> None:
    assert users_frames(OURS) == OURS
    assert users_frames(THEIRS) == THEIRS
    assert users_frames([]) == []
