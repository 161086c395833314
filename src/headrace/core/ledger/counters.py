"""The counters of one shared stream: what there is to count, and the values.

`StreamCounters` is the registry: a new counter is one field here and its increment. From the fields come the heartbeat of a triggerer, the
stored report, the status with its page, `/metrics` and the reference page of metrics (`headrace.wire.metrics`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final


def _counter(help: str, *, default: float = 0) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(slots=True)
class StreamCounters:
    """Values that only grow, from the first raw event that a process read from the stream.

    They count raw events, or calls where the text says so. Names that end with `_seconds` are sums of time in seconds.
    """

    read: int = _counter("Raw events read from the upstream and accounted for, as `headrace audit` counts them.")
    advanced: int = _counter("Raw events up to which the upstream was advanced.")
    rejected: int = _counter("Raw events that at least one trigger rejected.")
    filtered: int = _counter("Raw events on which no trigger fired.")
    failed: int = _counter("Raw events that at least one trigger did not answer.")
    spilled: int = _counter("Raw events that were stored in the backlog of at least one trigger.")
    resolved: int = _counter("Raw events that all triggers answered.")
    ack_seconds: float = _counter("Time from reading a raw event to its last answer, as a sum over the resolved raw events.", default=0.0)
    advances: int = _counter("Calls of `advance` that succeeded.")
    advance_errors: int = _counter("Calls of `advance` that failed or timed out.")
    advance_seconds: float = _counter("Duration of the calls of `advance` that succeeded.", default=0.0)


COUNTER_HELP: Final[dict[str, str]] = {each.name: each.metadata["help"] for each in fields(StreamCounters)}
"""The description of each counter by its name, in the order of the registry."""
