"""Compare the kernel with the pure core on many random histories: python scripts/soak_kernel.py [--histories N] [--seed N]"""

from __future__ import annotations

import argparse
import random
import sys
from contextlib import nullcontext
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support/projects"))

from support.ordering.kernel import RESTORES, ROUNDS, WIDTHS, History, Restore, histories, hold_equal, subset_steps

ROUND = 1_000


def main() -> None:
    """Run rounds of 1,000 histories, each with its own seed, until one fails or all have passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000, help="number of histories (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="seed of the first round; later rounds use the following numbers")
    options = parser.parse_args()
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    done = 0
    for number in range(first, first + -(-options.histories // ROUND)):
        done += _round(number)
        print(f"seed {number}: {done:,} histories, no difference", flush=True)


def _round(number: int) -> int:
    count = 0

    @seed(number)
    @settings(max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(histories(), st.lists(st.sampled_from(RESTORES), min_size=1, max_size=5), st.none() | st.tuples(ROUNDS, WIDTHS))
    def equal(history: History, restores: list[Restore], subset: tuple[int, int] | None) -> None:
        nonlocal count
        count += 1
        with subset_steps(*subset) if subset else nullcontext():
            hold_equal(history, restores)

    try:
        equal()
    except BaseException:
        print(f"seed {number}: FAILED", file=sys.stderr, flush=True)
        raise
    return count


if __name__ == "__main__":
    main()
