"""End this process when its supervisor has ended, also after a crash of the supervisor."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from headrace.process.child import LIFELINE

_GRACE = 5.0  # seconds until SIGKILL; a new supervisor may already start the successor


def hold_lifeline() -> None:
    """Watch standard input if the supervisor requires it. At its end, send SIGTERM to this process, and SIGKILL 5 s later."""
    if os.environ.get(LIFELINE) == "stdin":
        threading.Thread(target=_watch, name="lifeline", daemon=True).start()


def _watch() -> None:
    while os.read(sys.stdin.fileno(), 4096):  # the supervisor writes nothing: this returns at the end of the pipe
        continue
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os.killpg(os.getpgid(0), signal.SIGKILL)  # with its descendants: the process has its own group
