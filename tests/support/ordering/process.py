"""One of two processes in one scope: python -m support.ordering.process URL CHAINS DEPTH HALF; prints what it handled, and when."""

from __future__ import annotations

import sys
from time import monotonic_ns

from headrace.core.ordering.delivery import OrderedEvent
from headrace.store.ordering.standalone.store import StandaloneOrderingStore


def main() -> None:
    url, chains, depth, half = sys.argv[1], *map(int, sys.argv[2:])
    home = StandaloneOrderingStore(url, "shared", 3_600_000_000, by_age=False)
    names = [(chain, place) for place in reversed(range(depth)) for chain in range(chains)]
    mine = [OrderedEvent.of("", f"{c}-{p}", f"{c}-{p - 1}" if p else None, 0) for c, p in names if (c + p) % 2 == half]
    for start in range(0, len(mine), 20):
        home.offer(mine[start : start + 20], home.clock())
        _handle(home)
    while (counts := home.counts()).handled < chains * depth:
        assert counts.dead == 0
        _handle(home)
    home.close()


def _handle(home: StandaloneOrderingStore) -> None:
    claims = home.claim(7, home.clock())
    for claim in claims:
        sys.stdout.write(f"{claim.event.id}@{monotonic_ns()}\n")
    assert home.settle(claims, home.clock()) == len(claims)


if __name__ == "__main__":
    main()
