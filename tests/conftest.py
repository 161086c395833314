"""What holds for the whole run of the tests."""

from __future__ import annotations

import os
import random

import structlog
from structlog.dev import ConsoleRenderer, plain_traceback

# Chosen once and inherited by all that run tests side by side: seeds are in the names of tests, and all must find the same names.
for name in ("CHAOS_SEED", "SCENARIO_SEED"):
    os.environ.setdefault(name, str(random.SystemRandom().randrange(1, 10**9)))

# By default a traceback is drawn with all local variables, which takes longer than many a test.
_processors = structlog.get_config()["processors"]
structlog.configure(processors=[*_processors[:-1], ConsoleRenderer(colors=False, exception_formatter=plain_traceback)])
