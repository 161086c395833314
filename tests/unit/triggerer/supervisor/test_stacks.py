"""The stack of a blocked process shows users' frames and their callees only."""

from __future__ import annotations

from pathlib import Path

import headrace
from headrace.cli.commands import processes
from headrace.triggerer.ipc import shared_heartbeat
from headrace.triggerer.supervisor.stacks import users_frames
from headrace.triggerer.user_process import trigger_executor
from headrace.wiring import runner

PACKAGE = Path(headrace.__file__).parent


def frame(path: str, line: int, name: str) -> str:
    return f'File "{path}", line {line} in {name}'


OURS = [
    frame(str(trigger_executor.__file__), 150, "_turn"),
    frame(str(shared_heartbeat.__file__), 99, "send"),
    frame("/usr/lib/python3.11/asyncio/runners.py", 118, "run"),
    frame(str(runner.__file__), 121, "run_runner"),
    frame(str(processes.__file__), 84, "runner"),
    frame("/site-packages/typer/main.py", 700, "wrapper"),
]
THEIRS = [frame("/usr/lib/python3.11/re/__init__.py", 176, "search"), frame("/home/me/project.py", 12, "handle")]


def test_frames_of_headrace_above_and_between_users_frames_are_omitted() -> None:
    between = frame(f"{PACKAGE}/triggers/base.py", 72, "filter_shared_stream")
    above = frame("/home/me/project.py", 5, "filter_shared_stream")
    assert users_frames([*THEIRS, between, above, *OURS]) == [*THEIRS, above]


def test_a_stack_without_users_frames_is_shown_in_full() -> None:
    assert users_frames(OURS) == OURS
    assert users_frames(THEIRS) == THEIRS
    assert users_frames([]) == []
