"""End this process when the supervisor that started it is gone, however it went."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from headrace.process.child import LIFELINE

_GRACE = 5.0  # seconds to end in; a new supervisor may already be starting our successor


def hold_lifeline() -> None:
    """Watch standard input, if the supervisor said so; at its end, stop as at SIGTERM, and before long as at SIGKILL."""
    if os.environ.get(LIFELINE) == "stdin":
        threading.Thread(target=_watch, name="lifeline", daemon=True).start()


def _watch() -> None:
    while os.read(sys.stdin.fileno(), 4096):  # nothing is ever written: this returns at the end of the pipe
        continue
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os.killpg(os.getpgid(0), signal.SIGKILL)  # with all that it started: the supervisor gave us a group of our own
