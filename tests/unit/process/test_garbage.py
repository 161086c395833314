"""The pace of the garbage collector."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace.process.garbage import YOUNG_OBJECTS, collect_less_often

SCRIPT = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_threshold()[0]))
from headrace.cli.main import run
sys.argv = ["headrace", "runner", "--help"]
run()
"""


@pytest.fixture
def _former_pace() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_former_pace")
def test_the_objects_of_a_batch_are_not_visited_while_they_wait() -> None:
    collect_less_often()
    gc.collect()
    before = gc.get_stats()[0]["collections"]

    batch = [[number] for number in range(YOUNG_OBJECTS // 2)]

    assert gc.get_stats()[0]["collections"] == before
    assert len(batch) == YOUNG_OBJECTS // 2


def test_a_command_begins_with_the_pace_of_busy_processes() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == str(YOUNG_OBJECTS)
