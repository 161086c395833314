"""Execute one chaos run: generate its plan from a seed, print each fault, and check the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.chaos.kit import Fleet
from support.chaos.oracle import Oracle
from support.chaos.plan import Shape, plan

PATIENCE = 180.0


def chaos(folder: Path, shape: Shape, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Do one run; raise what went wrong, or return what happened."""
    faults = plan(seed, shape)
    with Fleet(folder, shape, seed, say) as fleet:
        oracle = Oracle(folder, fleet.load, fleet.database, fleet.urls)
        oracle.watch_claims()
        try:
            fleet.run(faults)
            began = time.monotonic()
            say("all are back; waiting until all is done")
            oracle.settled(PATIENCE, fleet.keep)
            took = time.monotonic() - began
            figures = oracle.judge()
        except AssertionError:
            for name, lines in fleet.log_tails().items():
                say(f"the last lines of {name}:\n{lines}")
            fleet.keep_evidence()
            oracle.keep_evidence()
            raise
        ended = [one for one in fleet.by_themselves if one.startswith("triggerer")]
        assert not ended, ended
        codes = fleet.stop()
        assert codes == [0] * len(codes), codes
        return {
            "seed": seed,
            **figures,
            "faults": dict(fleet.happened),
            "network": dict(fleet.network.did),
            "seconds_to_settle": round(took, 1),
            "ended_by_themselves": fleet.by_themselves,
        }
