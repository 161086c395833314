"""How long to wait before trying again: exponential, capped, with full jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass
class Backoff:
    """Successive waits in seconds; `reset` after a success."""

    first: float = 0.1
    most: float = 5.0
    chance: random.Random = field(default_factory=random.Random)
    _tries: int = 0

    def next(self, at_least: float | None = None) -> float:
        """Return the next wait, never shorter than `at_least` (a Retry-After)."""
        ceiling = min(self.most, self.first * 2.0 ** min(self._tries, 30))
        self._tries += 1
        # half fixed, half random: many clients spread out, and none comes back at once
        wait = ceiling * (0.5 + self.chance.random() / 2)
        return max(wait, at_least or 0.0)

    def reset(self) -> None:
        """Begin again with the first wait."""
        self._tries = 0

    @property
    def tries(self) -> int:
        """How many waits there were since the last success."""
        return self._tries
