"""What holds for the whole run of the tests."""

from __future__ import annotations

import os
import random

# Chosen once and inherited by all that run tests side by side: seeds are in the names of tests, and all must find the same names.
for name in ("CHAOS_SEED", "SCENARIO_SEED"):
    os.environ.setdefault(name, str(random.SystemRandom().randrange(1, 10**9)))
