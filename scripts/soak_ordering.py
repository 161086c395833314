"""Run generated histories, each named by its seed, in every ordering store, then the long cases at their full size.

python scripts/soak_ordering.py --help
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support/projects"))

from headrace.causal.memory_store import MemoryOrderingStore
from headrace.core.ordering.delivery import DeliveryPolicy
from headrace.ports.ordering_store import OrderingStore
from headrace.store.ordering import releases
from support.ordering.cases import CASES
from support.ordering.events import LOOKBACK, POLICY, WIDE, Handling, SubscriberSet, history, run
from support.ordering.stores import KernelHome, SqlScopes

SHARES: Final = {"memory": 40, "kernel": 40, "sqlite": 15, "postgresql": 5}
"""The percentage of histories for each store."""
SLICES: Final = (1, 2, 5, releases.RELEASED_EVENTS)
"""Values of the maximum number of events that one transaction releases, used in turn. The long cases use the last."""


def main() -> None:
    """Run the requested histories."""
    options = _arguments()
    kinds = [options.home] if options.home else list(SHARES)
    total, begun = 0, monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-ordering-", dir=options.dir) as folder:
        scopes = SqlScopes(Path(folder))
        try:
            for kind in kinds:
                number = 1 if options.seed is not None else options.histories if options.home else options.histories * SHARES[kind] // 100
                first = options.seed if options.seed is not None else options.first
                total += _soak(kind, scopes, first, number)
                if options.seed is None:
                    _cases(kind, scopes)
        finally:
            scopes.close()
    print(f"{total:,} histories without a violation in {monotonic() - begun:.0f} s")


def _soak(kind: str, scopes: SqlScopes, first: int, number: int) -> int:
    """Run histories in one store; return their number, or exit with the seed of a violation."""
    begun = monotonic()
    for seed in range(first, first + number):
        try:
            _one(kind, scopes, seed)
        except Exception:
            print(f"✗ {kind}: seed {seed}; to repeat: python scripts/soak_ordering.py --home {kind} --seed {seed}", flush=True)
            raise
    print(f"✓ {kind:<10} seeds {first:,} to {first + number - 1:,} in {monotonic() - begun:.0f} s", flush=True)
    return number


def _cases(kind: str, scopes: SqlScopes) -> None:
    """Run the long cases at their full size."""
    releases.RELEASED_EVENTS = SLICES[-1]  # type: ignore[misc]
    for name, case in CASES.items():
        begun = monotonic()
        case(KernelHome(WIDE) if kind == "kernel" else Handling(_home(kind, scopes, POLICY, WIDE), most=5_000))
        print(f"✓ {kind:<10} {name}, full size, in {monotonic() - begun:.0f} s", flush=True)


def _home(kind: str, scopes: SqlScopes, policy: DeliveryPolicy, lookback: int) -> OrderingStore:
    return MemoryOrderingStore(lookback, policy=policy) if kind == "memory" else scopes.home(kind, policy, lookback)


def _one(kind: str, scopes: SqlScopes, seed: int) -> None:
    """Run the history of one seed: twice for a store with claims, first with one worker and then with several workers that fail."""
    releases.RELEASED_EVENTS = SLICES[seed % len(SLICES)]  # type: ignore[misc]
    generator = Random(seed)
    max_events = generator.choice([6, 14, 14, 60])
    if kind == "kernel":
        run(KernelHome(LOOKBACK), history(generator, most=max_events))
        return
    policy = replace(POLICY, dead="hold" if seed % 2 else "release")
    run(Handling(_home(kind, scopes, policy, LOOKBACK)), history(generator, most=max_events))
    SubscriberSet(_home(kind, scopes, policy, LOOKBACK), generator, workers=generator.randint(1, 4)).run(
        history(generator, most=max_events)
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run generated histories in every ordering store.")
    parser.add_argument("--histories", type=int, default=10_000, help="number of histories in all stores (%(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (%(default)s)")
    parser.add_argument("--seed", type=int, help="run only the history of this seed")
    parser.add_argument("--home", choices=list(SHARES), help="run only this store")
    parser.add_argument("--dir", type=Path, help="folder for the database files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
