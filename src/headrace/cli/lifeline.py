"""End this process when the supervisor that started it is gone, however it went."""

from __future__ import annotations

import os
import signal
import sys
import threading

from headrace.standalone.child import LIFELINE


def hold_lifeline() -> None:
    """Watch standard input, if the supervisor said so; at its end, ask this process to stop, as SIGTERM would."""
    if os.environ.get(LIFELINE) == "stdin":
        threading.Thread(target=_watch, name="lifeline", daemon=True).start()


def _watch() -> None:
    while os.read(sys.stdin.fileno(), 4096):  # nothing is ever written: this returns at the end of the pipe
        continue
    os.kill(os.getpid(), signal.SIGTERM)
