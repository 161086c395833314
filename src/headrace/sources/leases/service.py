"""The requests about one queue that a reader needs. Each service implements them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from headrace.errors import HeadraceError
from headrace.sources.leases.leases import Lease
from headrace.triggers.raw_event import Message


class Received(NamedTuple):
    """One received message: its id, its receipt, its group if it is ordered, and its raw events in their lane."""

    id: str
    receipt: str
    group: str | None
    lane: str
    events: Sequence[Message]


class Answer(NamedTuple):
    """The messages of one poll. `is_full`: the queue probably has more."""

    messages: Sequence[Received]
    is_full: bool


Failures: TypeAlias = Mapping[Lease, HeadraceError | str]
"""The messages that a request failed for: an error if the same request may succeed later, else the reason."""


class LeaseService(Protocol):
    """The requests about one queue. Errors of single messages are in the results; all others raise `StreamError` or `UpstreamError`."""

    @property
    def max_messages(self) -> int:
        """The most messages of one request, except polls."""

    def poll(self) -> Callable[[], Awaitable[Answer]]:
        """Return the request of one poll. It is called again after a `StreamError`, until it returns."""

    async def acknowledge(self, leases: Sequence[Lease]) -> Failures:
        """Remove messages from the queue."""

    async def set_lease(self, leases: Sequence[Lease], seconds: int) -> Failures:
        """Set the rest of the leases, in seconds; 0 ends them."""

    async def aclose(self) -> None:
        """Close the connections."""


class LeaseSettings(NamedTuple):
    """How a queue is read. Both leases are in seconds: `first` is that of a received message, `lease` that of an extension."""

    queue: str
    first: float
    lease: int
    poll_seconds: float
    is_ordered: bool


def batches(leases: Sequence[Lease], size: int) -> list[Sequence[Lease]]:
    """Return the leases in parts of up to `size`."""
    return [leases[start : start + size] for start in range(0, len(leases), size)]
