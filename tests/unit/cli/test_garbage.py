"""Each process of `headrace` collects garbage less often, because all begin in the command line."""

from __future__ import annotations

import subprocess
import sys

from headrace.process.garbage import YOUNG_OBJECTS

SCRIPT = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_threshold()[0]))
from headrace.cli.main import run
sys.argv = ["headrace", "runner", "--help"]
run()
"""


def test_a_command_begins_with_the_pace_of_busy_processes() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == str(YOUNG_OBJECTS)
