"""Limits and timeouts of the streams of one manager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headrace.errors import UsageError

Overflow: TypeAlias = Literal["spill", "block", "fail"]
"""Effect of a full queue of a subscriber: it is spilled, the poll pauses, or the subscriber fails."""


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """The limits of every shared stream of one manager, as `SharedStreamManager` documents them."""

    max_subscriber_queue: int
    max_outstanding: int
    ack_timeout: float
    overflow: Overflow
    clock: Callable[[], float]
    max_attempts: int
    retry_wait: float
    advance_backoff: tuple[float, float]
    advance_attempts: int
    advance_timeout: float
    close_timeout: float
    max_advances: int
    overflow_wait: float = 0.0

    def __post_init__(self) -> None:
        if self.overflow not in ("spill", "block", "fail"):
            raise UsageError(f"There is no overflow {self.overflow!r}.", hint="It is 'spill', 'block' or 'fail'.")
        for name in (
            "max_subscriber_queue",
            "max_outstanding",
            "ack_timeout",
            "max_attempts",
            "advance_attempts",
            "advance_timeout",
            "close_timeout",
            "max_advances",
        ):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be more than 0.")
